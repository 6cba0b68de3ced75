"""Which node a ticket names, once its agent's signature holds."""

from __future__ import annotations

from typing import NamedTuple

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from pharoah_protocol.node_ticket import LIFETIME_SECONDS, Ticket, TicketError
from pharoah_provider.domain import Node
from pharoah_provider.storage.node_store import NodeStore
from pharoah_serving.clock import Clock
from pharoah_serving.errors import Refused


class VerifiedTicket(NamedTuple):
    """A ticket with a valid signature, and the node that it names."""

    ticket: Ticket
    node: Node


async def verify(nodes: NodeStore, body: bytes, signature: bytes, clock: Clock) -> VerifiedTicket:
    """The claims of a ticket, and its node. Raises Refused with one message for all reasons.

    What the ticket says about the time goes to the clock before its expiry is checked: the clock may learn from it that
    it is wrong itself.
    """
    try:
        node = await nodes.node(Ticket.read(body).node)
        if node is None:
            raise TicketError("ticket: unknown node")
        key = Ed25519PublicKey.from_public_bytes(node.ticket_key)
        ticket = Ticket.from_signed(body, signature, key)
        if ticket.boot_id != node.boot_id:
            raise TicketError("ticket: from before the node restarted")
        clock.stated(node.node, ticket.expires_at - LIFETIME_SECONDS)
        ticket.check_expiry(clock.wall())
    except TicketError:
        raise Refused("the node ticket is not valid") from None
    return VerifiedTicket(ticket=ticket, node=node)
