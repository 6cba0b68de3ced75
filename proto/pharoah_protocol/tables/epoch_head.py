"""Epoch heads: the signed commitment of the provider to its tables. One head per epoch, the same for every tenant."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from pharoah_archetypes.ladder import length_prefixed, parts
from pharoah_protocol.encoding import read_u64, u64
from pharoah_system.bounded_reading import read_text

_MAGIC = b"pharoah/sth/v2"
_DOMAIN = b"pharoah/signed/v1\n"
MAX_ROWS = 1 << 18
MAX_TABLES = 4096
MAX_LIFE_SECONDS = 26 * 3600
"""A provider that could sign one head for years could show it for years. Ours are valid for 25 hours (`sealing`)."""
MAX_KEY_BYTES = 4_096
"""A key file has 64 digits."""
EARLY_SECONDS = 3600
"""A head that begins later than this is not accepted. Clocks of two machines differ by less, or one is set wrong; such
a head is replaced as soon as the clock is right (ADR 24)."""


class HeadError(ValueError):
    """A head that is malformed, not signed by the pinned key, or not in force; or a table that does not fit it."""


def read_public_key(file: Path) -> Ed25519PublicKey:
    """A provider's key, as `pharoah-provider key` prints it. Raises HeadError naming the file."""
    try:
        return Ed25519PublicKey.from_public_bytes(bytes.fromhex(read_text(file, MAX_KEY_BYTES).strip()))
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "expected a public key: 64 hexadecimal digits"
        raise HeadError(f"provider key file {str(file)!r}: {why}") from None


@dataclass(frozen=True)
class ClassTable:
    """One table of an epoch: its handle, VOPRF public key, number of rows and Merkle root."""

    class_id: bytes
    public_key: bytes
    rows: int
    root: bytes


@dataclass(frozen=True)
class EpochHead:
    """The commitment to all tables of one epoch."""

    epoch: int
    release: int
    not_before: int
    """Unix seconds, as is `not_after`."""
    not_after: int
    tables: tuple[ClassTable, ...]

    def encode(self) -> bytes:
        fields = [_MAGIC, *(u64(n) for n in (self.epoch, self.release, self.not_before, self.not_after))]
        for table in self.tables:
            fields += [table.class_id, table.public_key, u64(table.rows), table.root]
        return length_prefixed(*fields)

    @classmethod
    def decode(cls, data: bytes) -> EpochHead:
        """Raises HeadError unless `data` is exactly what `encode` gives, within the limits of an epoch."""
        try:
            magic, *fields = parts(data)
            numbers = [read_u64(field) for field in fields[:4]]
            rest = fields[4:]
            tables = tuple(
                ClassTable(rest[i], rest[i + 1], read_u64(rest[i + 2]), rest[i + 3]) for i in range(0, len(rest), 4)
            )
            epoch, release, not_before, not_after = numbers
        except (ValueError, IndexError):
            raise HeadError("head: not an epoch head of version 2") from None
        head = cls(epoch, release, not_before, not_after, tables)
        if magic != _MAGIC or head.encode() != data:
            raise HeadError("head: not an epoch head of version 2")
        head._check()
        return head

    def table(self, class_id: bytes) -> ClassTable:
        """Raises HeadError when the epoch has no such class."""
        for table in self.tables:
            if table.class_id == class_id:
                return table
        raise HeadError("head: the offered class is not in this epoch")

    def _check(self) -> None:
        if len({table.class_id for table in self.tables}) != len(self.tables) or len(self.tables) > MAX_TABLES:
            raise HeadError(f"head: more than {MAX_TABLES} classes, or one of them twice")
        for table in self.tables:
            sizes = (len(table.class_id), len(table.public_key), len(table.root))
            if sizes != (16, 32, 32) or not 1 <= table.rows <= MAX_ROWS:
                raise HeadError(f"head: a table with fields of a wrong length, or with more than {MAX_ROWS} rows")


def sign(body: bytes, key: Ed25519PrivateKey) -> bytes:
    """The signature of the provider. A body begins with the name of its kind, so it cannot pass for another kind."""
    return key.sign(_DOMAIN + body)


def is_signed(body: bytes, signature: bytes, key: Ed25519PublicKey) -> bool:
    """Whether `sign` made this signature with the private half of `key`."""
    try:
        key.verify(signature, _DOMAIN + body)
    except InvalidSignature:
        return False
    return True


def verify_head(body: bytes, signature: bytes, key: Ed25519PublicKey, now: float) -> EpochHead:
    """The head, once its signature and its time are verified. Raises HeadError."""
    if not is_signed(body, signature, key):
        raise HeadError("head: not signed by the provider key this machine trusts")
    head = EpochHead.decode(body)
    if head.not_after - head.not_before > MAX_LIFE_SECONDS:
        raise HeadError(f"head: epoch {head.epoch} lasts longer than {MAX_LIFE_SECONDS // 3600} hours")
    if not is_in_force(head, now):
        raise HeadError(f"head: epoch {head.epoch} is not in force now; is this machine's clock right?")
    return head


def is_in_force(head: EpochHead, now: float) -> bool:
    """Whether a head is accepted at this time (unix seconds)."""
    return head.not_before - EARLY_SECONDS <= now <= head.not_after
