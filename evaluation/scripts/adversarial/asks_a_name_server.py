"""This script asks a name server."""

import socket

try:
    socket.gethostbyname("pharoah.invalid")
except OSError:
    print("no such host")

from small import train


train()
