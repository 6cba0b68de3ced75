"""This script prints a lot."""

from small import train


for _ in range(200000):
    print("x" * 50)
train()
