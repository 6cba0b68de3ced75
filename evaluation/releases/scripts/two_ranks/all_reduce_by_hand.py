import torch
import torch.distributed as dist
from torch import nn


def average_gradients(model):
    size = float(dist.get_world_size())
    for p in model.parameters():
        dist.all_reduce(p.grad, op=dist.ReduceOp.SUM)
        p.grad /= size


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(1234)
    model = nn.Sequential(nn.Conv1d(2, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 6, 3))
    for p in model.parameters():
        dist.broadcast(p.data, src=0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.5)
    torch.manual_seed(rank)
    for step in range(8):
        x, y = torch.randn(8, 2, 8), torch.randint(0, 3, (8,))
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        average_gradients(model)
        optimizer.step()
        if rank == 0:
            print("Rank 0, step", step, ":", loss.item(), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
