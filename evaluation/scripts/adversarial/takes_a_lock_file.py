"""This script takes a lock file."""

import os

fd = os.open("lock", os.O_CREAT | os.O_EXCL | os.O_WRONLY)

from small import train


train()
os.remove("lock")
