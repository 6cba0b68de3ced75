"""This script refuses a folder that exists."""

import os

os.mkdir("run")

from small import train


train()
