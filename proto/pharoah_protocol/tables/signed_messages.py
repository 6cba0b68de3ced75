"""What the provider signs besides heads, so that a lie can be shown to others: offers, tables, evaluations.

Each is canonical bytes that begin with what they are; `pharoah_protocol.tables.epoch_head.sign` signs them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

from pharoah_archetypes.ladder import length_prefixed, parts
from pharoah_protocol.encoding import read_u64, u64
from pharoah_protocol.vocabulary import IncidentState


class StatementError(ValueError):
    """Bytes that are no statement of the kind they should be."""


OFFER_MAGIC = b"pharoah/offer/v2"
"""Version 2 added the state of the node."""


def offer(offer_id: bytes, epoch: int, expires_at: int, class_ids: Sequence[bytes], node_state: IncidentState) -> bytes:
    """These classes are offered, in this epoch, until then (unix seconds), on a node in this state."""
    state = bytes([node_state.code])
    return length_prefixed(OFFER_MAGIC, offer_id, u64(epoch), u64(expires_at), state, *class_ids)


def table(epoch: int, class_id: bytes, rows: bytes) -> bytes:
    """These are all rows of a class."""
    return length_prefixed(b"pharoah/table/v1", u64(epoch), class_id, hashlib.sha256(rows).digest())


def evaluation(
    offer_id: bytes,
    request_id: bytes,
    blinded: Sequence[bytes],
    answers: Iterable[tuple[bytes, Sequence[bytes], bytes]],
) -> bytes:
    """These elements were asked, and these are the answers: class, evaluated elements, proof."""
    said = [part for class_id, evaluated, proof in answers for part in (class_id, length_prefixed(*evaluated), proof)]
    return length_prefixed(b"pharoah/evaluated/v1", offer_id, request_id, length_prefixed(*blinded), *said)


def looked_up(
    offer_id: bytes,
    request_id: bytes,
    hashed_key: bytes,
    revoked: bytes,
    tokens: Sequence[bytes],
    rows: Sequence[bytes],
) -> bytes:
    """Hashed mode: these tokens were asked under this key, and these are the rows by class, empty for none, while the
    list of revoked rows with this digest was in force."""
    key = hashlib.sha256(hashed_key).digest()
    return length_prefixed(
        b"pharoah/looked-up/v2", offer_id, request_id, key, revoked, length_prefixed(*tokens), length_prefixed(*rows)
    )


def pseudonym_key(period: int, public: bytes) -> bytes:
    """This is the signer's public key for pseudonyms of a period."""
    return length_prefixed(b"pharoah/name-key/v1", u64(period), public)


def revoked(epoch: int, rows: Iterable[bytes]) -> bytes:
    """These rows of the epoch no longer hold, each as class handle and tag."""
    return length_prefixed(b"pharoah/revoked/v1", u64(epoch), *sorted(rows))


def digest(revoked: bytes) -> bytes:
    """Of a list of revoked rows; empty for none."""
    return hashlib.sha256(revoked).digest() if revoked else b""


def read_revoked(body: bytes) -> tuple[int, frozenset[bytes]]:
    """Epoch and rows. Raises StatementError unless `body` is exactly what `revoked` gives."""
    try:
        _, number, *rows = parts(body)
        epoch = read_u64(number)
    except ValueError:
        raise StatementError("revoked: malformed") from None
    if any(len(row) != 32 for row in rows) or revoked(epoch, set(rows)) != body:
        raise StatementError("revoked: malformed")
    return epoch, frozenset(rows)
