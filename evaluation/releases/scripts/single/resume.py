"""Trains in two halves: the second one goes on from the checkpoint of the first."""

import os
import random

import torch
from torch import nn


def train(steps):
    model = nn.Sequential(nn.Linear(6, 12), nn.ELU(), nn.Linear(12, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.95)
    first = 0
    if os.path.exists("checkpoint.pt"):
        state = torch.load("checkpoint.pt", map_location="cpu", weights_only=False)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        scheduler.load_state_dict(state["scheduler"])
        torch.set_rng_state(state["rng"])
        first = state["step"] + 1
        print("resumed at", first)
    for step in range(first, first + steps):
        x = torch.randn(8, 6)
        loss = nn.functional.huber_loss(model(x).squeeze(1), x.prod(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        print(step, loss.item(), scheduler.get_last_lr())
    torch.save(
        {
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "step": step,
            "scheduler": scheduler.state_dict(),
            "rng": torch.get_rng_state(),
        },
        "checkpoint.pt",
    )


random.seed(0)
torch.manual_seed(0)
train(7)
train(3)
