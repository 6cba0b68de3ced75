"""Node tickets: who signed them, for which node, and until when."""

from __future__ import annotations

import time

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from pharoah_protocol.node_ticket import Ticket, TicketError


def test_a_ticket_is_good_for_its_node_and_minutes() -> None:
    key, now = Ed25519PrivateKey.generate(), time.time()
    body, signature = Ticket.issue("n1", "boot", key, now)
    assert Ticket.verify(body, signature, key.public_key(), now).node == "n1"
    with pytest.raises(TicketError, match="expired"):
        Ticket.verify(body, signature, key.public_key(), now + 3600)
    with pytest.raises(TicketError, match="signed"):
        Ticket.verify(body.replace(b"n1", b"n2"), signature, key.public_key(), now)
    with pytest.raises(TicketError, match="malformed"):
        Ticket.read(b"{}")
