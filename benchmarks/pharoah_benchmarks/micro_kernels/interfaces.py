"""Which network interface leads to a host. The standard library alone."""

from __future__ import annotations

import contextlib
import fcntl
import ipaddress
import socket
import struct
from pathlib import Path

_ANY_PORT = 9
"""Nothing is sent to it (port `discard`, RFC 863)."""
_GET_ADDRESS = 0x8915
"""SIOCGIFADDR of netdevice(7)."""
_REQUEST = "256s"
_ADDRESS = slice(20, 24)
"""Where the answer has the address: after the name, the family and the port (struct ifreq, struct sockaddr_in)."""
_LONGEST_NAME = 15
_SIX = Path("/proc/net/if_inet6")
"""Lines of an address in hexadecimal digits, four numbers, and the name (net/ipv6/addrconf.c)."""


def interface_to(host: str) -> str:
    """The interface by which this machine reaches a host, or that has its address; empty where there is none."""
    with contextlib.suppress(OSError, ValueError):
        kind, _, _, _, address = socket.getaddrinfo(host, _ANY_PORT, type=socket.SOCK_DGRAM)[0]
        with socket.socket(kind, socket.SOCK_DGRAM) as probe:
            probe.connect(address)  # it only looks for the way
            own = ipaddress.ip_address(probe.getsockname()[0].partition("%")[0])
        return _owner_of_four(own) if own.version == 4 else _owner_of_six(own)
    return ""


def _owner_of_four(own: ipaddress.IPv4Address) -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        for _, name in socket.if_nameindex():
            request = struct.pack(_REQUEST, name.encode()[:_LONGEST_NAME])
            with contextlib.suppress(OSError):  # this one has no address
                if fcntl.ioctl(asking, _GET_ADDRESS, request)[_ADDRESS] == own.packed:
                    return name
    return ""


def _owner_of_six(own: ipaddress.IPv6Address) -> str:
    for line in _SIX.read_text().splitlines():
        address, *_, name = line.split()
        if bytes.fromhex(address) == own.packed:
            return name
    return ""
