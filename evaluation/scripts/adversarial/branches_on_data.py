"""This script branches on data."""

import torch
from small import model, train


x = torch.randn(4, 8)
if model(x).sum() > 0:
    print("positive")
train()
