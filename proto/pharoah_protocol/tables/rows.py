"""Verdict rows: 32 plain bytes, sealed into 64 under a key that only the right input gives.

A row key seals exactly one row, so the fixed nonce is safe: `seal_table` refuses a repeated tag.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

from pharoah_archetypes.ladder import length_prefixed
from pharoah_protocol.encoding import u64
from pharoah_protocol.vocabulary import Outcome, Rung, Severity

ROW_BYTES = 64
LEAST_ROWS = 64
TAG_BYTES = 16
_NONCE = bytes(12)
_FORMAT = struct.Struct(">BBBHB16sHHHHBx")
"""Format, severity, reserved, remedy, rung, plan, four counts, outcome, one byte of padding."""
assert _FORMAT.size == 32
_ROW_FORMAT, _RESERVED = 1, 0

_RUNG_CODES = {Rung.EXACT: 0, Rung.MINOR: 1, Rung.MAJOR: 2}
_RUNGS = {code: rung for rung, code in _RUNG_CODES.items()}


@dataclass(frozen=True)
class VerdictRow:
    """One learned fact, as it is sealed. Counts saturate at 65,535."""

    severity: Severity
    outcome: Outcome
    rung: Rung
    failures: int
    runs: int
    base_failures: int
    base_runs: int
    remedy: int = 0
    plan: bytes = bytes(16)
    """The packed monitoring plan of such jobs (see pharoah_protocol.monitoring_plan)."""

    def pack(self) -> bytes:
        counts = (min(c, 0xFFFF) for c in (self.failures, self.runs, self.base_failures, self.base_runs))
        return _FORMAT.pack(
            _ROW_FORMAT,
            self.severity.code,
            _RESERVED,
            self.remedy,
            _RUNG_CODES[self.rung],
            self.plan,
            *counts,
            self.outcome.code,
        )

    @classmethod
    def unpack(cls, data: bytes) -> VerdictRow:
        """Raises ValueError for another version or codes this release does not know."""
        try:
            version, severity, _, remedy, rung, plan, failures, runs, base_failures, base_runs, outcome = (
                _FORMAT.unpack(data)
            )
            if version != _ROW_FORMAT:
                raise ValueError(f"row version {version}; this release reads {_ROW_FORMAT}")
            return cls(
                severity=Severity.from_code(severity),
                outcome=Outcome.from_code(outcome),
                rung=_RUNGS[rung],
                failures=failures,
                runs=runs,
                base_failures=base_failures,
                base_runs=base_runs,
                remedy=remedy,
                plan=plan,
            )
        except (struct.error, KeyError):
            raise ValueError("row: codes or length this release does not know") from None


class TableEntry(NamedTuple):
    """A row, and the VOPRF output of the input that opens it."""

    output: bytes
    row: VerdictRow


def seal_table(entries: Iterable[TableEntry], epoch: int, class_id: bytes, padding_key: bytes) -> list[bytes]:
    """Sealed rows, sorted and padded with dummies to a power of two (at least 64).

    Dummies follow from `padding_key` (32 secret bytes): its holder can make the same table
    again, and for others dummies look like rows. Raises ValueError when two outputs give the same tag.
    """
    rows: dict[bytes, bytes] = {}
    for output, row in entries:
        tag, key = _row_key(output, epoch, class_id)
        if tag in rows:
            raise ValueError("two rows for one input: a key would seal twice")
        sealed = ChaCha20Poly1305(key).encrypt(_NONCE, row.pack(), length_prefixed(tag, u64(epoch), class_id))
        rows[tag] = tag + sealed
    dummies = max(LEAST_ROWS, 1 << (len(rows) - 1).bit_length() if rows else 0) - len(rows)
    padding = _stream(padding_key, length_prefixed(b"pharoah/dummies/v1", u64(epoch), class_id), ROW_BYTES * dummies)
    return sorted([*rows.values(), *split(padding)])


def split(content: bytes) -> list[bytes]:
    """The rows of a table from its concatenation."""
    return [content[at : at + ROW_BYTES] for at in range(0, len(content), ROW_BYTES)]


def row_tag(output: bytes, epoch: int, class_id: bytes) -> bytes:
    """The first bytes of the row of a VOPRF output; a list of revoked rows names rows by them."""
    return _row_key(output, epoch, class_id)[0]


def open_row(table: Sequence[bytes], output: bytes, epoch: int, class_id: bytes) -> VerdictRow | None:
    """The row this VOPRF output opens, or None. A row that does not authenticate counts as absent."""
    tag, key = _row_key(output, epoch, class_id)
    at = bisect_left(table, tag)
    if at == len(table) or table[at][:TAG_BYTES] != tag:
        return None
    try:
        plain = ChaCha20Poly1305(key).decrypt(_NONCE, table[at][TAG_BYTES:], length_prefixed(tag, u64(epoch), class_id))
        return VerdictRow.unpack(plain)
    except (InvalidTag, ValueError):
        return None


def _row_key(output: bytes, epoch: int, class_id: bytes) -> tuple[bytes, bytes]:
    info = length_prefixed(b"pharoah/entry/v1", u64(epoch), class_id)
    material = HKDFExpand(SHA256(), 48, info).derive(output)
    return material[:TAG_BYTES], material[TAG_BYTES:]


def _stream(key: bytes, purpose: bytes, size: int) -> bytes:
    """`size` pseudorandom bytes (ChaCha20 under a key for this purpose alone)."""
    cipher = Cipher(ChaCha20(HKDFExpand(SHA256(), 32, purpose).derive(key), bytes(16)), mode=None)
    return cipher.encryptor().update(bytes(size))
