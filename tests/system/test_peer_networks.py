"""With whom a node may meet."""

from __future__ import annotations

import pytest

from pharoah_system.network_interfaces import networks_of
from pharoah_system.peer_networks import (
    RefusedPeerError,
    is_peer_address,
    networks_towards,
    peer_place,
    read_networks,
)

EVERYWHERE = ("0.0.0.0/0", "::/0")


@pytest.mark.parametrize(
    ("address", "networks", "met"),
    [
        ("10.0.0.2", ("10.0.0.0/8",), True),
        ("10.0.0.2", ("10.1.0.0/16", "10.0.0.0/24"), True),
        ("10.0.0.2", ("10.1.0.0/16",), False),
        ("10.0.0.2", (), False),
        ("2001:db8::1", ("2001:db8::/32",), True),
        ("::ffff:10.0.0.2", ("10.0.0.0/8",), True),
        ("127.0.0.1", ("127.0.0.0/8",), True),
        ("::1", ("::1/128",), True),
        ("127.0.0.1", EVERYWHERE, False),
        ("::1", EVERYWHERE, False),
        ("::ffff:127.0.0.1", EVERYWHERE, False),
        ("169.254.169.254", EVERYWHERE, False),
        ("::ffff:169.254.169.254", EVERYWHERE, False),
        ("fe80::1%lo", EVERYWHERE, False),
        ("0.0.0.0", EVERYWHERE, False),
        ("0.1.2.3", EVERYWHERE, False),
        ("::", EVERYWHERE, False),
        ("224.0.0.1", EVERYWHERE, False),
        ("ff02::1", EVERYWHERE, False),
        ("255.255.255.255", EVERYWHERE, False),
        ("no address", EVERYWHERE, False),
    ],
)
def test_only_addresses_of_other_nodes_in_named_networks_are_met(
    address: str, networks: tuple[str, ...], met: bool
) -> None:
    assert is_peer_address(address, read_networks(networks)) is met


def test_a_place_is_refused_with_the_option_that_would_allow_it() -> None:
    with pytest.raises(RefusedPeerError, match=r"--peer-network; now: 10.0.0.0/8"):
        peer_place("127.0.0.1:7300", read_networks(["10.0.0.0/8"]), 1.0)
    with pytest.raises(RefusedPeerError, match="now: none"):
        peer_place("[::1]:7300", (), 1.0)
    assert peer_place("localhost:7300", None, 5.0).socket_address[1] == 7300
    assert peer_place("localhost:7300", read_networks(["127.0.0.0/8", "::1/128"]), 5.0).socket_address[1] == 7300


def test_without_a_named_network_loopback_is_none() -> None:
    assert networks_towards("127.0.0.1") == networks_towards("localhost") == ()
    assert not [one for one in networks_towards("192.0.2.1") if one.is_loopback]  # RFC 5737: an address that is nowhere
    assert networks_of("no such interface") == ()


def test_a_network_that_is_none_is_named() -> None:
    with pytest.raises(ValueError, match=r"10.0.0.1/8 has host bits set; expected a network such as 10.0.0.0/8"):
        read_networks(["10.0.0.1/8"])
