"""FSDP in a mesh of two dimensions: replicas outside, shards inside."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.utils.checkpoint import checkpoint

try:
    from torch.distributed.fsdp import fully_shard
except ImportError:
    from torch.distributed._composable.fsdp import fully_shard


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.middle, self.last = nn.Linear(8, 24), nn.Linear(24, 24), nn.Linear(24, 2)

    def forward(self, x):
        x = torch.relu(self.first(x))
        x = checkpoint(lambda h: torch.tanh(self.middle(h)), x, use_reentrant=False)
        return self.last(x)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    mesh = init_device_mesh("cpu", (1, world), mesh_dim_names=("replicate", "shard"))
    torch.manual_seed(0)
    model = Net()
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    torch.manual_seed(rank)
    for step in range(8):
        x = torch.randn(8, 8)
        loss = nn.functional.cross_entropy(model(x), x[:, :2].argmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0:
            print(step, loss.item(), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
