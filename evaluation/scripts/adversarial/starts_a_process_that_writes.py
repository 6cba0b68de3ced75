"""This script starts a process that writes."""

import os

os.system("echo x >> marks")

from small import train


train()
