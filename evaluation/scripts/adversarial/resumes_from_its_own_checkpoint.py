"""This script resumes from its own checkpoint."""

import os

import torch
from small import model, train


if os.path.exists("c.pt"):
    print("resumed")
    model.load_state_dict(torch.load("c.pt"))
torch.save(model.state_dict(), "c.pt")
train()
