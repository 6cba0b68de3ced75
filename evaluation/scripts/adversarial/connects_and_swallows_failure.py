"""This script connects and ignores the failure."""

import os
import socket

try:
    socket.create_connection(("127.0.0.1", int(os.environ["OUTSIDE"])))
    print("up")
except OSError:
    print("down")

from small import train


train()
