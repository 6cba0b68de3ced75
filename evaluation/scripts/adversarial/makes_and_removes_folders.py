"""This script makes and removes folders."""

import os
import shutil

os.makedirs("a/b")
shutil.rmtree("a")
os.mkdir("c")

from small import train


train()
