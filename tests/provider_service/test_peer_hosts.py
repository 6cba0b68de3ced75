"""Where other nodes reach a node: never where its agent says, but for the port."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pharoah_provider.peer_hosts import PeerHosts
from pharoah_serving.errors import Invalid, ProviderError

FROM_AFAR = "ipv4:10.0.0.7:51234"


@pytest.mark.parametrize(
    ("stated", "connection", "address"),
    [
        ("7300", FROM_AFAR, "10.0.0.7:7300"),
        ("192.168.0.1:7300", FROM_AFAR, "10.0.0.7:7300"),
        ("169.254.169.254:8080", FROM_AFAR, "10.0.0.7:8080"),
        ("-oProxy:1024", FROM_AFAR, "10.0.0.7:1024"),
        ("[::1]:65535", "ipv6:%5B2001:db8::7%5D:51234", "[2001:db8::7]:65535"),
        ("7300", "ipv6:[::ffff:10.0.0.7]:51234", "10.0.0.7:7300"),
        ("10.0.0.1:7300", "unix:", ""),
        ("10.0.0.1:7300", "ipv4:127.0.0.1:5", ""),
        ("10.0.0.1:7300", "ipv6:%5B::1%5D:5", ""),
        ("10.0.0.1:7300", "ipv6:%5Bfe80::1%25eth0%5D:5", ""),
        ("10.0.0.1:7300", "ipv4:169.254.0.1:5", ""),
        ("", FROM_AFAR, ""),
    ],
)
def test_the_host_is_that_of_the_connection(stated: str, connection: str, address: str) -> None:
    assert PeerHosts().address("n1", stated, connection) == address


@pytest.mark.parametrize("stated", ["10.0.0.1:22", "10.0.0.1:1023", "127.0.0.1:99999", "0", "a..b:0", "x", "n 1:7300"])
def test_a_port_of_the_system_and_none_are_refused(stated: str) -> None:
    with pytest.raises(Invalid, match=r"hello\.peer_address"):
        PeerHosts().address("n1", stated, FROM_AFAR)


@given(st.text(max_size=60))
def test_whatever_an_agent_states_nobody_is_led_elsewhere(stated: str) -> None:
    try:
        found = PeerHosts().address("n1", stated, FROM_AFAR)
    except Invalid:
        return
    host, _, port = found.rpartition(":")
    assert not found or (host == "10.0.0.7" and 1024 <= int(port) <= 65535)


def test_an_operator_names_hosts_that_no_connection_shows() -> None:
    hosts = PeerHosts.from_options(["n1=10.1.1.1", "n2=::1", "n3=node3.cluster"])
    assert hosts.address("n1", "1.2.3.4:7300", FROM_AFAR) == "10.1.1.1:7300"
    assert hosts.address("n2", "7300", "unix:") == "[::1]:7300"
    assert hosts.address("n3", "7300", "unix:") == "node3.cluster:7300"
    assert hosts.address("n4", "7300", FROM_AFAR) == "10.0.0.7:7300"
    for wrong in ("n1", "=10.0.0.1", "n1=", "n1=a b", "n1=-oProxy", "n1=0.0.0.0"):
        with pytest.raises(ProviderError, match="--peer-host"):
            PeerHosts.from_options([wrong])
