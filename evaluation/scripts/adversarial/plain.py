"""This script plain."""

from small import train


train()
