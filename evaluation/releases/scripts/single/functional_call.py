"""MAML on sines: inner steps by `functional_call` and `grad`, tasks by `vmap`."""

import torch
from torch import nn
from torch.func import functional_call, grad, vmap

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(1, 20), nn.Tanh(), nn.Linear(20, 1))
params = dict(net.named_parameters())
optimizer = torch.optim.Adam(params.values(), lr=1e-3)


def mse(p, x, y):
    return (functional_call(net, p, (x,)) - y).pow(2).mean()


def task_loss(x1, y1, x2, y2):
    inner = grad(mse)(params, x1, y1)
    adapted = {k: params[k] - 0.1 * g for k, g in inner.items()}
    return mse(adapted, x2, y2)


for it in range(8):
    amplitude, phase = torch.rand(4, 1, 1) * 4 + 1, torch.rand(4, 1, 1) * 3
    x1, x2 = torch.rand(2, 4, 10, 1) * 10 - 5
    y1, y2 = amplitude * torch.sin(x1 + phase), amplitude * torch.sin(x2 + phase)
    loss = vmap(task_loss)(x1, y1, x2, y2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(it, loss.item())
