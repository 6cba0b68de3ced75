"""This script writes before training."""

open("log.txt", "a").write("started\n")

from small import train


train()
