"""The optimizers that are compared on one model, one after another."""

import torch
from torch import nn

OPTIMIZERS = {
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=1e-3, momentum=0.9),
    "nadam": lambda p: torch.optim.NAdam(p, lr=1e-3),
    "adamax": lambda p: torch.optim.Adamax(p, lr=1e-3),
    "radam": lambda p: torch.optim.RAdam(p, lr=1e-3),
    "adadelta": lambda p: torch.optim.Adadelta(p),
    "rprop": lambda p: torch.optim.Rprop(p, lr=1e-3),
}

x = torch.linspace(-1, 1, 64).unsqueeze(1)
y = x**3 - x
for name, make in OPTIMIZERS.items():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = make(model.parameters())
    for _ in range(7):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
    print(f"{name:10} {loss.item()}")
