"""This script saves a checkpoint first."""

import torch
from small import model, train


torch.save(model.state_dict(), "first.pt")
train()
