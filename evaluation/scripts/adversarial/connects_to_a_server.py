"""This script connects to a server."""

import os
import socket

s = socket.create_connection(("127.0.0.1", int(os.environ["OUTSIDE"])))
s.close()

from small import train


train()
