"""Which node a ticket names, once its agent's signature holds."""

from __future__ import annotations

import time

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from pharoah_protocol.node_ticket import Ticket, TicketError
from pharoah_provider.domain import Node
from pharoah_provider.storage.base import NodeStore
from pharoah_serving.errors import Refused


async def verified(nodes: NodeStore, body: bytes, signature: bytes) -> tuple[Ticket, Node]:
    """Ticket and node. Raises Refused with one message for all reasons."""
    try:
        node = await nodes.node(Ticket.read(body).node)
        if node is None:
            raise TicketError("ticket: unknown node")
        key = Ed25519PublicKey.from_public_bytes(node.ticket_key)
        ticket = Ticket.verify(body, signature, key, time.time())
        if ticket.boot_id != node.boot_id:
            raise TicketError("ticket: from before the node restarted")
    except TicketError:
        raise Refused("the node ticket is not valid") from None
    return ticket, node
