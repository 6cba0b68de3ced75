"""This script misses a file."""

from small import train


open("nowhere.txt").read()
train()
