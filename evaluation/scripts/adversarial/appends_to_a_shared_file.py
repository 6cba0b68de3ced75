"""This script appends to a shared file."""

import os

open("count", "a").write("x")
print(os.path.getsize("count"))

from small import train


train()
