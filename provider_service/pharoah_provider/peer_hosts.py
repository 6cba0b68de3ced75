"""Where other nodes reach a node while both measure their network together.

The host is that of the agent's connection, or the one that the provider's operator has named: an agent that could name
a host would lead other nodes to any service that they can reach. The port is the agent's.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote

from pharoah_serving.errors import Invalid, ProviderError
from pharoah_serving.peers import address_of, is_one_connection
from pharoah_system.peer_networks import FIRST_PEER_PORT, LAST_PEER_PORT, is_routed

_STATED = re.compile(r"(?:[^\s]{1,255}:)?([0-9]{1,5})")
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?")


@dataclass(frozen=True)
class PeerHosts:
    """Decides on the address of each node."""

    named: Mapping[str, str] = field(default_factory=dict)
    """Node to its host, as the operator has named it: behind a translation of addresses, or with a network of its own
    for jobs. Only so a loopback address is one."""

    @classmethod
    def from_options(cls, texts: Iterable[str]) -> PeerHosts:
        """The hosts of `NODE=HOST` texts. Raises ProviderError that names the text."""
        named = {}
        for text in texts:
            node, equals, host = text.partition("=")
            if not node or not equals or not _is_host(host):
                raise ProviderError(f"--peer-host {text!r:.300}: expected NODE=HOST, such as n1=10.0.0.1")
            named[node] = host
        return cls(named)

    def address(self, node: str, stated: str, connection: str) -> str:
        """`HOST:PORT`; empty for a node that states no port, or whose host is not known.

        `stated` is what the agent states of itself, `PORT` or `HOST:PORT`, of which the port counts. `connection` is
        its connection as gRPC names it. Raises Invalid.
        """
        if not stated:
            return ""
        found = _STATED.fullmatch(stated)
        if found is None or not FIRST_PEER_PORT <= int(found[1]) <= LAST_PEER_PORT:
            raise Invalid(
                f"hello.peer_address: {stated[:80]!r}, expected PORT or HOST:PORT with a port from {FIRST_PEER_PORT} "
                f"to {LAST_PEER_PORT}"
            )
        host = self.named.get(node) or _host_of(connection)
        shown = f"[{host}]" if ":" in host else host
        return f"{shown}:{found[1]}" if host else ""


def _host_of(connection: str) -> str:
    """The address of the other end: `ipv4:10.0.0.1:51234` -> `10.0.0.1`, `ipv6:%5B2001:db8::1%5D:5` -> `2001:db8::1`.

    Empty for a Unix socket, and for an address that no other node could use: from loopback may come a tunnel.
    """
    if not is_one_connection(connection):
        return ""
    text = address_of(connection).partition(":")[2]
    try:
        address = ipaddress.ip_address(unquote(text).strip("[]").partition("%")[0])
    except ValueError:
        return ""
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return str(address) if is_routed(address) else ""


def _is_host(text: str) -> bool:
    """A name, or an address that can be connected to."""
    try:
        return not ipaddress.ip_address(text).is_unspecified
    except ValueError:
        return bool(_NAME.fullmatch(text)) and not text.replace(".", "").isdecimal()
