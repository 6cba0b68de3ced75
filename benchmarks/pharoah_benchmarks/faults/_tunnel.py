"""A network device whose packets go through a process of ours (docs.kernel.org/networking/tuntap.html)."""

from __future__ import annotations

import fcntl
import os
import socket
import struct
from ipaddress import IPv4Address

from pharoah_benchmarks.faults._namespaces import CLONE_NEWNET, enter

NAME = "ph0"
NETWORK = IPv4Address("10.77.0.0")
"""Addresses of the ranks; no other process is in their network namespaces."""
PACKET_BYTES = 32_768
"""Largest packet: large ones cost the process that carries them fewer calls."""
_TUNSETIFF, _IFF_TUN, _IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
"""linux/if_tun.h"""
_SIOCSIFADDR, _SIOCSIFNETMASK, _SIOCSIFMTU, _SIOCSIFFLAGS, _IFF_UP = 0x8916, 0x891C, 0x8922, 0x8914, 0x1
"""linux/sockios.h, linux/if.h"""


def open_tunnel(rank: int) -> int:
    """Move this thread into a network namespace of its own, with a device that is the only way out. Raises OSError.

    Returns a descriptor: reading gives one packet that the rank sends, writing hands it one.
    """
    enter(CLONE_NEWNET)
    tunnel = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(tunnel, _TUNSETIFF, struct.pack("16sH22x", NAME.encode(), _IFF_TUN | _IFF_NO_PI))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        _configure(control, _SIOCSIFADDR, NAME, _address(NETWORK + rank + 1))
        _configure(control, _SIOCSIFNETMASK, NAME, _address(IPv4Address("255.255.255.0")))
        _configure(control, _SIOCSIFMTU, NAME, struct.pack("i20x", PACKET_BYTES))
        for device in ("lo", NAME):
            _configure(control, _SIOCSIFFLAGS, device, struct.pack("h22x", _IFF_UP))
    return tunnel


def rank_at(packet: bytes, offset: int) -> int:
    """The rank whose IPv4 address stands at an offset of a packet, -1 for what is none (such as IPv6)."""
    if len(packet) < 20 or packet[0] >> 4 != 4:
        return -1
    return int.from_bytes(packet[offset : offset + 4]) - int(NETWORK) - 1


SENDER_OFFSET, RECEIVER_OFFSET = 12, 16
"""Where a packet has its addresses (RFC 791)."""


def _configure(control: socket.socket, request: int, device: str, value: bytes) -> None:
    fcntl.ioctl(control, request, struct.pack("16s24s", device.encode(), value))


def _address(address: IPv4Address) -> bytes:
    """A sockaddr_in in the union of a struct ifreq."""
    return struct.pack("=HH4s16x", socket.AF_INET, 0, address.packed)
