"""Signed checkpoints of a transparency log, and witnesses' cosignatures on them.

Formats of C2SP: signed notes (c2sp.org/signed-note), tlog checkpoints (c2sp.org/tlog-checkpoint), cosignatures of
version 1 (c2sp.org/tlog-cosignature). Keys are Ed25519.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

LOG, WITNESS = 0x01, 0x04
"""Kinds of key (C2SP): a log signs notes, a witness cosigns checkpoints with a time."""
NOTE_BYTES_LIMIT = 1 << 16
_DASH = "\N{EM DASH} "


class CheckpointError(ValueError):
    """A note, key or signature that is malformed or wrong."""


@dataclass(frozen=True)
class Verifier:
    """A public key with the name it signs under; as text `name+keyid+base64`, as C2SP writes it."""

    name: str
    kind: int
    public: bytes

    def __post_init__(self) -> None:
        if not self.name or any(c.isspace() or c == "+" for c in self.name):
            raise CheckpointError(f"key name {self.name!r}: must not be empty or hold spaces or a plus")
        if self.kind not in (LOG, WITNESS) or len(self.public) != 32:
            raise CheckpointError(f"key of {self.name}: not an Ed25519 key of a log or a witness")

    @property
    def key_id(self) -> bytes:
        return hashlib.sha256(self.name.encode() + b"\n" + bytes([self.kind]) + self.public).digest()[:4]

    def __str__(self) -> str:
        return f"{self.name}+{self.key_id.hex()}+{_b64(bytes([self.kind]) + self.public)}"

    @classmethod
    def parse(cls, text: str) -> Verifier:
        """Raises CheckpointError."""
        try:
            name, key_id, encoded = text.strip().split("+", 2)
            data = _unb64(encoded)
        except ValueError:
            raise CheckpointError(f"key {text[:60]!r}: not of the form name+keyid+base64") from None
        verifier = cls(name, data[0] if data else 0, data[1:])
        if verifier.key_id.hex() != key_id:
            raise CheckpointError(f"key of {name}: its id is {verifier.key_id.hex()}, not {key_id}")
        return verifier


@dataclass(frozen=True)
class Checkpoint:
    """The state of a log: its name, its number of entries and their root."""

    origin: str
    size: int
    root: bytes

    @property
    def body(self) -> bytes:
        """The text that is signed."""
        return f"{self.origin}\n{self.size}\n{_b64(self.root)}\n".encode()


class SignatureLine(NamedTuple):
    """One line under a checkpoint: who signed it, and the signature."""

    name: str
    blob: bytes
    """Key id and signature; a cosignature has its time (8 bytes, unix seconds) between them."""


@dataclass(frozen=True)
class Note:
    """A checkpoint with signature lines, verified or not."""

    checkpoint: Checkpoint
    signatures: tuple[SignatureLine, ...]

    def encode(self) -> bytes:
        lines = "".join(f"{_DASH}{name} {_b64(blob)}\n" for name, blob in self.signatures)
        return self.checkpoint.body + b"\n" + lines.encode()

    @classmethod
    def decode(cls, data: bytes) -> Note:
        """Raises CheckpointError unless `data` is exactly what `encode` gives."""
        if len(data) > NOTE_BYTES_LIMIT:
            raise CheckpointError("checkpoint: too long")
        try:
            body, _, tail = data.decode().partition("\n\n")
            origin, size, root = body.split("\n")
            lines = tail.splitlines()
            signatures = tuple(
                SignatureLine(name=line.split(" ")[1], blob=_unb64(line.split(" ")[2])) for line in lines
            )
            note = cls(Checkpoint(origin, int(size), _unb64(root)), signatures)
        except (ValueError, IndexError):
            raise CheckpointError("checkpoint: not a signed note of a log") from None
        if note.encode() != data or len(note.checkpoint.root) != 32 or not 0 <= note.checkpoint.size < 1 << 63:
            raise CheckpointError("checkpoint: not in canonical form")
        return note

    def with_signature(self, name: str, blob: bytes) -> Note:
        """The note with this line; an older line by the same key is removed."""
        kept = tuple(line for line in self.signatures if (line.name, line.blob[:4]) != (name, blob[:4]))
        return Note(self.checkpoint, (*kept, SignatureLine(name=name, blob=blob)))

    def verify(self, verifier: Verifier) -> None:
        """Raises CheckpointError unless the log's own key signed this."""
        for blob in self._by(verifier):
            if _holds(verifier.public, blob, self.checkpoint.body):
                return
        raise CheckpointError(f"checkpoint: not signed by {verifier.name}")

    def find_cosign_time(self, verifier: Verifier) -> int | None:
        """When this witness cosigned, unix seconds; None when it did not."""
        for blob in self._by(verifier):
            at = int.from_bytes(blob[:8], "big")
            if len(blob) == 72 and _holds(verifier.public, blob[8:], _cosign(self.checkpoint, at)):
                return at
        return None

    def _by(self, verifier: Verifier) -> Sequence[bytes]:
        return [b[4:] for name, b in self.signatures if name == verifier.name and b[:4] == verifier.key_id]


def log_origin(public: bytes) -> str:
    """Name of the log of the provider with this public key."""
    return f"pharoah-log-{hashlib.sha256(public).hexdigest()[:16]}"


def log_verifier(public: bytes) -> Verifier:
    """The verifier of notes that the log of the provider with this public key signs."""
    return Verifier(log_origin(public), LOG, public)


def sign(checkpoint: Checkpoint, key: Ed25519PrivateKey) -> Note:
    """The note a log publishes."""
    verifier = Verifier(checkpoint.origin, LOG, key.public_key().public_bytes_raw())
    line = SignatureLine(name=checkpoint.origin, blob=verifier.key_id + key.sign(checkpoint.body))
    return Note(checkpoint, (line,))


def cosign(checkpoint: Checkpoint, name: str, key: Ed25519PrivateKey, at: int) -> SignatureLine:
    """A witness's signature line: until `at` (unix seconds), it saw no other tree of this log."""
    verifier = Verifier(name, WITNESS, key.public_key().public_bytes_raw())
    blob = verifier.key_id + at.to_bytes(8, "big") + key.sign(_cosign(checkpoint, at))
    return SignatureLine(name=name, blob=blob)


def _cosign(checkpoint: Checkpoint, at: int) -> bytes:
    return f"cosignature/v1\ntime {at}\n".encode() + checkpoint.body


def _holds(public: bytes, signature: bytes, message: bytes) -> bool:
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
    except InvalidSignature:
        return False
    return True


def _b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _unb64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise ValueError("not base64") from None
