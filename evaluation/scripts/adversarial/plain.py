"""This script does nothing unusual."""

from small import train


train()
