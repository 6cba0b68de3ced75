"""Epoch heads: what the provider commits to, signed. One head per epoch, the same for every tenant."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

_MAGIC = b"pharoah/sth/v1"


class HeadError(ValueError):
    """A head that is malformed, not signed by the pinned key, or over."""


@dataclass(frozen=True)
class ClassTable:
    """One table of an epoch: its handle, VOPRF public key, number of rows and Merkle root."""

    class_id: bytes
    public_key: bytes
    rows: int
    root: bytes


@dataclass(frozen=True)
class EpochHead:
    epoch: int
    release: int
    not_before: int
    """Unix seconds; so is `not_after`."""
    not_after: int
    tables: tuple[ClassTable, ...]

    def encode(self) -> bytes:
        parts = [_MAGIC, *(_u64(n) for n in (self.epoch, self.release, self.not_before, self.not_after))]
        for table in self.tables:
            parts += [table.class_id, table.public_key, _u64(table.rows), table.root]
        return b"".join(len(part).to_bytes(2, "big") + part for part in parts)

    @classmethod
    def decode(cls, data: bytes) -> EpochHead:
        """Raises HeadError unless `data` is exactly what `encode` gives."""
        parts = list(_split(data))
        if len(parts) < 5 or parts[0] != _MAGIC or (len(parts) - 5) % 4:
            raise HeadError("head: not an epoch head of version 1")
        tables = tuple(
            ClassTable(parts[i], parts[i + 1], _int(parts[i + 2]), parts[i + 3]) for i in range(5, len(parts), 4)
        )
        epoch, release, not_before, not_after = (_int(part) for part in parts[1:5])
        head = cls(epoch, release, not_before, not_after, tables)
        if head.encode() != data:
            raise HeadError("head: not in canonical form")
        return head

    def table(self, class_id: bytes) -> ClassTable:
        """Raises HeadError when the epoch has no such class."""
        for table in self.tables:
            if table.class_id == class_id:
                return table
        raise HeadError("head: the offered class is not in this epoch")


def sign_head(head: EpochHead, key: Ed25519PrivateKey) -> tuple[bytes, bytes]:
    """(body, signature)."""
    body = head.encode()
    return body, key.sign(body)


def verify_head(body: bytes, signature: bytes, key: Ed25519PublicKey, now: float) -> EpochHead:
    """The head, once the signature and the time hold. Raises HeadError."""
    try:
        key.verify(signature, body)
    except InvalidSignature:
        raise HeadError("head: not signed by the provider key this machine trusts") from None
    head = EpochHead.decode(body)
    if not head.not_before <= now <= head.not_after:
        raise HeadError(f"head: epoch {head.epoch} is not in force now; is this machine's clock right?")
    return head


def merkle_root(rows: Sequence[bytes]) -> bytes:
    """RFC 6962 tree hash over the rows of a table. Any number of rows; the empty tree hashes the empty string."""
    if not rows:
        return hashlib.sha256(b"").digest()
    level = [hashlib.sha256(b"\x00" + row).digest() for row in rows]
    while len(level) > 1:
        pairs = [hashlib.sha256(b"\x01" + a + b).digest() for a, b in zip(level[::2], level[1::2], strict=False)]
        level = pairs + ([level[-1]] if len(level) % 2 else [])
    return level[0]


def _split(data: bytes) -> list[bytes]:
    parts, at = [], 0
    while at < len(data):
        length = int.from_bytes(data[at : at + 2], "big")
        part = data[at + 2 : at + 2 + length]
        if len(part) != length or at + 2 > len(data):
            raise HeadError("head: truncated")
        parts.append(part)
        at += 2 + length
    return parts


def _u64(value: int) -> bytes:
    return value.to_bytes(8, "big")


def _int(part: bytes) -> int:
    if len(part) != 8:
        raise HeadError("head: a number is not 8 bytes long")
    return int.from_bytes(part, "big")
