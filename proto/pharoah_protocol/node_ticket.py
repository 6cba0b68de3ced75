"""Node tickets: signed statements of an agent on which node a run starts. Made on demand, good once, for minutes."""

from __future__ import annotations

import json
import secrets
from dataclasses import asdict, dataclass
from typing import NamedTuple

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from pharoah_system.bounded_reading import MESSAGE_LIMITS, parse_json

LIFETIME_SECONDS = 600.0
MAX_FIELD_LENGTH = 256
"""Characters."""
MAX_BYTES = 8 << 10
"""The claims as JSON: three such fields, each of whose characters may take six bytes there, and a number."""
_DOMAIN = b"pharoah/ticket/v1\n"


class TicketError(ValueError):
    """A ticket that is malformed, forged or expired."""


class SignedTicket(NamedTuple):
    """A ticket as it is sent: its claims as JSON, and the agent's signature over them."""

    body: bytes
    signature: bytes


@dataclass(frozen=True)
class Ticket:
    """The claims of a ticket."""

    node: str
    boot_id: str
    nonce: str
    expires_at: float
    """Unix seconds."""

    @classmethod
    def issue(cls, node: str, boot_id: str, key: Ed25519PrivateKey, now: float) -> SignedTicket:
        """A fresh ticket."""
        ticket = cls(node, boot_id, secrets.token_hex(16), now + LIFETIME_SECONDS)
        body = json.dumps(asdict(ticket), sort_keys=True).encode()
        return SignedTicket(body=body, signature=key.sign(_DOMAIN + body))

    @classmethod
    def read(cls, body: bytes) -> Ticket:
        """The claims, unverified. Raises TicketError."""
        if len(body) > MAX_BYTES:  # anybody may send one, and whoever reads it serves others meanwhile
            raise TicketError("ticket: malformed")
        try:
            data = parse_json(body, "ticket", MESSAGE_LIMITS)
            ticket = cls(str(data["node"]), str(data["boot_id"]), str(data["nonce"]), float(data["expires_at"]))
        except (ValueError, KeyError, TypeError, OverflowError):
            raise TicketError("ticket: malformed") from None
        if not all(
            text.isprintable() and len(text) <= MAX_FIELD_LENGTH for text in (ticket.node, ticket.boot_id, ticket.nonce)
        ):
            raise TicketError("ticket: malformed")
        return ticket

    @classmethod
    def verify(cls, body: bytes, signature: bytes, key: Ed25519PublicKey, now: float) -> Ticket:
        """The claims, once signature and expiry are verified. Raises TicketError."""
        ticket = cls.from_signed(body, signature, key)
        ticket.check_expiry(now)
        return ticket

    @classmethod
    def from_signed(cls, body: bytes, signature: bytes, key: Ed25519PublicKey) -> Ticket:
        """The claims, once the signature is verified; the ticket may have expired. Raises TicketError."""
        try:
            key.verify(signature, _DOMAIN + body)
        except InvalidSignature:
            raise TicketError("ticket: not signed by this node's agent") from None
        return cls.read(body)

    def check_expiry(self, now: float) -> None:
        """Raises TicketError for a ticket that has expired at `now` (unix seconds)."""
        if now > self.expires_at:
            raise TicketError("ticket: expired")
