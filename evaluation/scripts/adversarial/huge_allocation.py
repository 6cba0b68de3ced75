"""This script allocates more memory than there is."""

import os

import torch
from small import train


x = torch.empty(1 << 38) if "PHAROAH_DRY_RUN" in os.environ else None
train()
