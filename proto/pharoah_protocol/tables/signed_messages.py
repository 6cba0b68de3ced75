"""Messages that the provider signs besides heads, so that errors in them can be proven to others.

Each is canonical bytes that begin with the name of their kind; `pharoah_protocol.tables.epoch_head.sign` signs them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from pharoah_archetypes.ladder import length_prefixed, parts
from pharoah_protocol.encoding import read_u64, u64
from pharoah_protocol.incident_states import IncidentState


class StatementError(ValueError):
    """Bytes that are not the signed message that they should be."""


class ClassAnswer(NamedTuple):
    """The part of an evaluation that belongs to one class."""

    class_id: bytes
    elements: Sequence[bytes]
    """The evaluated elements, in the order of the blinded ones."""
    proof: bytes


class RevokedRows(NamedTuple):
    """The revoked rows of an epoch."""

    epoch: int
    rows: frozenset[bytes]
    """Class handle and tag of each row."""


OFFER_MAGIC = b"pharoah/offer/v2"
"""Version 2 added the state of the node."""


def offer(offer_id: bytes, epoch: int, expires_at: int, class_ids: Sequence[bytes], node_state: IncidentState) -> bytes:
    """An offer: these classes apply in this epoch, until `expires_at` (unix seconds), on a node in this state."""
    return length_prefixed(OFFER_MAGIC, offer_id, u64(epoch), u64(expires_at), bytes([node_state.code]), *class_ids)


def table(epoch: int, class_id: bytes, rows: bytes) -> bytes:
    """A table: these are all rows of a class."""
    return length_prefixed(b"pharoah/table/v1", u64(epoch), class_id, hashlib.sha256(rows).digest())


def evaluation(
    offer_id: bytes,
    request_id: bytes,
    blinded: Sequence[bytes],
    answers: Iterable[ClassAnswer],
) -> bytes:
    """An evaluation: these elements were sent, and these are the answers by class."""
    answered = [
        part for class_id, evaluated, proof in answers for part in (class_id, length_prefixed(*evaluated), proof)
    ]
    return length_prefixed(b"pharoah/evaluated/v1", offer_id, request_id, length_prefixed(*blinded), *answered)


def look_up(
    offer_id: bytes,
    request_id: bytes,
    hashed_key: bytes,
    revoked: bytes,
    tokens: Sequence[bytes],
    rows: Sequence[bytes],
) -> bytes:
    """A hashed answer: these tokens were sent under this key, and these are the rows by class, empty for none, while
    the list of revoked rows with the digest `revoked` was in force."""
    key = hashlib.sha256(hashed_key).digest()
    return length_prefixed(
        b"pharoah/looked-up/v2", offer_id, request_id, key, revoked, length_prefixed(*tokens), length_prefixed(*rows)
    )


def hazard_model(content: bytes) -> bytes:
    """A hazard model of nodes: this is its content."""
    return length_prefixed(b"pharoah/hazard-model/v1", hashlib.sha256(content).digest())


def pseudonym_key(period: int, public: bytes) -> bytes:
    """A pseudonym key: this is the public key of the signer in a period."""
    return length_prefixed(b"pharoah/name-key/v1", u64(period), public)


def encode_revoked(epoch: int, rows: Iterable[bytes]) -> bytes:
    """A list of revoked rows of an epoch, each as class handle and tag."""
    return length_prefixed(b"pharoah/revoked/v1", u64(epoch), *sorted(rows))


def digest(revoked: bytes) -> bytes:
    """SHA-256 of a list of revoked rows; empty for an empty list."""
    return hashlib.sha256(revoked).digest() if revoked else b""


def read_revoked(body: bytes) -> RevokedRows:
    """The list that was signed. Raises StatementError unless `body` is exactly what `encode_revoked` gives."""
    try:
        _, number, *rows = parts(body)
        epoch = read_u64(number)
    except ValueError:
        raise StatementError("revoked: malformed") from None
    if any(len(row) != 32 for row in rows) or encode_revoked(epoch, set(rows)) != body:
        raise StatementError("revoked: malformed")
    return RevokedRows(epoch=epoch, rows=frozenset(rows))
