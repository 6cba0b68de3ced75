"""With whom a node may meet: the networks that its operator names, or those of the interface to the provider.

Whoever gives an address of another node must not be able to lead us to any service that we can reach.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence

from pharoah_system.host_addresses import HostAddress, resolve
from pharoah_system.network_interfaces import Network, interface_to, networks_of

FIRST_PEER_PORT, LAST_PEER_PORT = 1024, 65535
"""Below are services of the system (RFC 6335, section 6)."""
_HERE = ipaddress.ip_network("0.0.0.0/8")
"""Linux connects to this machine for an address of it (RFC 1122, section 3.2.1.3)."""

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class RefusedPeerError(ValueError):
    """An address at which this node meets nobody; the message says why."""


def read_networks(texts: Iterable[str]) -> tuple[Network, ...]:
    """Raises ValueError that names the text."""
    found = []
    for text in texts:
        try:
            found.append(ipaddress.ip_network(text))
        except ValueError as error:
            raise ValueError(f"{error}; expected a network such as 10.0.0.0/8") from None
    return tuple(found)


def networks_towards(host: str) -> tuple[Network, ...]:
    """The networks of the interface that leads to a host. None for a host on this machine: its services on loopback are
    nobody's to reach. Looks up a name, so that it may take long."""
    return tuple(network for network in networks_of(interface_to(host)) if not network.is_loopback)


def is_peer_address(text: str, networks: Sequence[Network]) -> bool:
    """Whether an address is that of another node: in one of the networks; a loopback address only in a network that is
    loopback itself, and no link-local, multicast, reserved or unspecified address."""
    try:
        address: Address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return False
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    if not is_routed(address) and not address.is_loopback:
        return False
    wanted = [network for network in networks if network.is_loopback or not address.is_loopback]
    return any(address in network for network in wanted)


def is_routed(address: Address) -> bool:
    """Whether an address can be that of another machine beyond one link."""
    never = (address.is_loopback, address.is_link_local, address.is_multicast, address.is_unspecified)
    return not any(never) and not (
        isinstance(address, ipaddress.IPv4Address) and (address in _HERE or _is_old(address))
    )


def peer_place(rendezvous: str, networks: Sequence[Network] | None, limit_seconds: float) -> HostAddress:
    """The address of a `HOST:PORT` where this node may meet; a name is looked up once, and what is found is used.

    `networks`: None for any, where people of this node have named the place. Raises RefusedPeerError, OSError,
    TimeoutError.
    """
    host, _, port = rendezvous.rpartition(":")
    found = resolve(host.strip("[]"), int(port), limit_seconds)
    if networks is None and found:
        return found[0]
    for place in found:
        if is_peer_address(place.socket_address[0], networks or ()):
            return place
    named = ", ".join(str(network) for network in networks or ()) or "none"
    raise RefusedPeerError(
        f"this node does not meet at {rendezvous!r:.80}: it is in none of its networks (--peer-network; now: {named})"
    )


def _is_old(address: ipaddress.IPv4Address) -> bool:
    """Class E and the broadcast address (RFC 1112)."""
    return address.is_reserved
