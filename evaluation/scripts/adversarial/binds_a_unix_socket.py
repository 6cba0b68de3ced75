"""This script binds a Unix socket."""

import os
import socket

s = socket.socket(socket.AF_UNIX)
s.bind("here.sock")

from small import train


train()

os.remove("here.sock")
