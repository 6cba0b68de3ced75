"""Which network interface leads to a host, and to which networks it is connected."""

from __future__ import annotations

import contextlib
import fcntl
import ipaddress
import socket
import struct
from pathlib import Path

from pharoah_system.host_addresses import resolve

LOOKUP_SECONDS = 5.0
"""How long the name of a host is looked up."""
_ANY_PORT = 9
"""Nothing is sent to it (port `discard`, RFC 863)."""
_GET_ADDRESS = 0x8915
"""SIOCGIFADDR of netdevice(7)."""
_REQUEST = "256s"
_ADDRESS = slice(20, 24)
"""Where the answer has the address: after the name, the family and the port (struct ifreq, struct sockaddr_in)."""
_MAX_NAME_LENGTH = 15
_SIX = Path("/proc/net/if_inet6")
"""Lines of an address in hexadecimal digits, four numbers, and the name (net/ipv6/addrconf.c)."""


_ROUTES = Path("/proc/net/route")
"""Lines of an interface, then destination, gateway and mask in hexadecimal digits (net/ipv4/fib_trie.c)."""
_GATEWAY, _MASK = 2, 7

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def networks_of(interface: str) -> tuple[Network, ...]:
    """The networks that are reached by this interface without a gateway. None of an interface that has no address."""
    return *_networks_of_four(interface), *_networks_of_six(interface)


def interface_to(host: str) -> str:
    """The interface by which this machine reaches a host, or that has its address; empty where there is none."""
    with contextlib.suppress(OSError, ValueError):
        family, address = resolve(host, _ANY_PORT, LOOKUP_SECONDS)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(address)  # it only looks for the way
            own = ipaddress.ip_address(probe.getsockname()[0].partition("%")[0])
        return _owner_of_four(own) if own.version == 4 else _owner_of_six(own)
    return ""


def _owner_of_four(own: ipaddress.IPv4Address) -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        for _, name in socket.if_nameindex():
            request = struct.pack(_REQUEST, name.encode()[:_MAX_NAME_LENGTH])
            with contextlib.suppress(OSError):  # this one has no address
                if fcntl.ioctl(asking, _GET_ADDRESS, request)[_ADDRESS] == own.packed:
                    return name
    return ""


def _owner_of_six(own: ipaddress.IPv6Address) -> str:
    return next((name for address, _, name in _addresses_of_six() if address == own), "")


def _networks_of_four(interface: str) -> list[ipaddress.IPv4Network]:
    found = []
    for line in _lines(_ROUTES)[1:]:
        name, destination, *fields = line.split()
        gateway, mask = fields[_GATEWAY - 2], _four(fields[_MASK - 2])
        if name == interface and _four(gateway).is_unspecified and not mask.is_unspecified:
            found.append(ipaddress.IPv4Network(f"{_four(destination)}/{mask}", strict=False))
    return found


def _networks_of_six(interface: str) -> list[ipaddress.IPv6Network]:
    return [
        ipaddress.IPv6Network((address, prefix), strict=False)
        for address, prefix, name in _addresses_of_six()
        if name == interface and not address.is_link_local
    ]


def _addresses_of_six() -> list[tuple[ipaddress.IPv6Address, int, str]]:
    found = []
    for line in _lines(_SIX):
        address, _, prefix, *_, name = line.split()
        found.append((ipaddress.IPv6Address(bytes.fromhex(address)), int(prefix, 16), name))
    return found


def _four(text: str) -> ipaddress.IPv4Address:
    """The tables have addresses in the order of this machine."""
    return ipaddress.IPv4Address(struct.pack("=I", int(text, 16)))


def _lines(table: Path) -> list[str]:
    try:
        return table.read_text().splitlines()
    except OSError:  # a kernel without this version of the protocol
        return []
