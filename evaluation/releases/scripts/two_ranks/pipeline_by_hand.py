"""Two stages of a model on two ranks; activations and gradients are sent by hand."""

import torch
import torch.distributed as dist
from torch import nn


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    if rank == 0:
        stage = nn.Sequential(nn.Linear(8, 16), nn.ReLU())
    else:
        stage = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(stage.parameters(), lr=0.05)
    data = torch.Generator().manual_seed(5)
    for step in range(8):
        x = torch.randn(4, 8, generator=data)
        y = x.sum(1, keepdim=True)
        optimizer.zero_grad()
        if rank == 0:
            hidden = stage(x)
            dist.send(hidden.detach(), dst=1)
            gradient = torch.empty_like(hidden)
            dist.recv(gradient, src=1)
            hidden.backward(gradient)
        else:
            hidden = torch.empty(4, 16)
            dist.recv(hidden, src=0)
            hidden.requires_grad_()
            loss = nn.functional.mse_loss(stage(hidden), y)
            loss.backward()
            dist.send(hidden.grad, dst=0)
        optimizer.step()
        if rank == 1:
            print(step, loss.item(), flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
