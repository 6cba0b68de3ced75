import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

try:
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
except ImportError:  # before torch 2.6
    from torch.distributed._composable.fsdp import MixedPrecisionPolicy, fully_shard


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), Layer(16), Layer(16), nn.Linear(16, 1))
    policy = MixedPrecisionPolicy(param_dtype=torch.float32)
    for layer in model:
        if isinstance(layer, Layer):
            fully_shard(layer, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    torch.manual_seed(rank)
    for step in range(8):
        x = torch.randn(4, 8)
        loss = nn.functional.mse_loss(model(x).squeeze(1), x.sum(1))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if rank == 0:
            print(step, loss.item(), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
