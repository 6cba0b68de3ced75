"""This script deletes its input."""

import os

os.remove("input.txt")

from small import train


train()
