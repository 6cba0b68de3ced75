"""This script changes its working folder."""

import os

os.mkdir("sub")
os.chdir("sub")
open("f", "w").write("1")

from small import train


train()
