"""This script uses a dispatch mode."""

from torch.utils.flop_counter import FlopCounterMode
from small import train


with FlopCounterMode(display=False) as f:
    train()
