"""Verdict rows: 32 plain bytes, sealed into 64 under a key that only the right input gives.

A row key seals exactly one row, so the fixed nonce is safe: `seal_table` refuses a repeated tag.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

from pharoah_archetypes.ladder import length_prefixed
from pharoah_protocol.encoding import u64
from pharoah_protocol.monitoring_plan import PLAN_BYTES
from pharoah_protocol.vocabulary import Grade, Outcome, Provenance, Rung, Severity

ROW_BYTES = 64
MIN_ROWS = 64
TAG_BYTES = 16
_NONCE = bytes(12)
EVIDENCE_BYTES = 8
_FORMAT = struct.Struct(f">BBBHB{EVIDENCE_BYTES}sHHHHB{PLAN_BYTES}sB")
"""Format, severity, provenance and grade (four bits each), remedy, rung, evidence, four counts, outcome, plan, least
position of the size."""
_FORMAT_1 = struct.Struct(">BBBHB16sHHHHBx")
"""Format, severity, reserved, remedy, rung, plan, four counts, outcome, one byte of padding: rows of format 1."""
assert _FORMAT.size == _FORMAT_1.size == 32
_ROW_FORMAT, _FIRST_FORMAT = 2, 1

_RUNG_CODES = {Rung.EXACT: 0, Rung.MINOR: 1, Rung.MAJOR: 2, Rung.ONE_DEVICE: 3, Rung.COLLECTIVES: 4}
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
    plan: bytes = bytes(PLAN_BYTES)
    """The packed monitoring plan of such jobs (see pharoah_protocol.monitoring_plan)."""
    provenance: Provenance = Provenance.CAMPAIGN
    grade: Grade = Grade.ASSOCIATION
    evidence: bytes = bytes(EVIDENCE_BYTES)
    """Names the evidence at the provider, so that a tenant can ask about it; zeros for none."""
    least_size: int = 0
    """The row speaks of jobs from this position in its size classes on (`pharoah_archetypes.size_position`)."""

    def pack(self) -> bytes:
        counts = (min(c, 0xFFFF) for c in (self.failures, self.runs, self.base_failures, self.base_runs))
        return _FORMAT.pack(
            _ROW_FORMAT,
            self.severity.code,
            self.provenance.code << 4 | self.grade.code,
            self.remedy,
            _RUNG_CODES[self.rung],
            self.evidence,
            *counts,
            self.outcome.code,
            self.plan,
            self.least_size,
        )

    @classmethod
    def unpack(cls, data: bytes) -> VerdictRow:
        """Read a row. What a later release has a name for reads as `other`, as no remedy and as the plain plan.

        Raises ValueError for a format, a severity or a rung that this release does not know: such a row cannot be
        judged, and counts as absent.
        """
        try:
            if data[:1] == bytes([_FIRST_FORMAT]):
                _, severity, _, remedy, rung, plan, *counts, outcome = _FORMAT_1.unpack(data)
                strength, evidence, least_size = 0, bytes(EVIDENCE_BYTES), 0
            else:
                version, severity, strength, remedy, rung, evidence, *counts, outcome, plan, least_size = (
                    _FORMAT.unpack(data)
                )
                if version != _ROW_FORMAT:
                    raise ValueError(f"row format {version}; this release reads {_FIRST_FORMAT} and {_ROW_FORMAT}")
            failures, runs, base_failures, base_runs = counts
            return cls(
                severity=Severity.from_code(severity),
                outcome=_or_other(Outcome, outcome),
                rung=_RUNGS[rung],
                failures=failures,
                runs=runs,
                base_failures=base_failures,
                base_runs=base_runs,
                remedy=remedy,
                plan=plan[:PLAN_BYTES],
                provenance=_or_other(Provenance, strength >> 4),
                grade=_or_other(Grade, strength & 0xF),
                evidence=evidence,
                least_size=least_size,
            )
        except (struct.error, KeyError):
            raise ValueError("row: a rung or a length that this release does not know") from None


def readable(data: bytes) -> VerdictRow | None:
    """The row, or None for one that this release cannot judge."""
    try:
        return VerdictRow.unpack(data)
    except ValueError:
        return None


_Coded = TypeVar("_Coded", Outcome, Provenance, Grade)


def _or_other(kind: type[_Coded], code: int) -> _Coded:
    try:
        return kind.from_code(code)
    except ValueError:
        return kind("other")


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
    dummies = max(MIN_ROWS, 1 << (len(rows) - 1).bit_length() if rows else 0) - len(rows)
    padding = _stream(padding_key, length_prefixed(b"pharoah/dummies/v1", u64(epoch), class_id), ROW_BYTES * dummies)
    return sorted([*rows.values(), *split(padding)])


def split(content: bytes) -> list[bytes]:
    """The rows of a table from its concatenation."""
    return [content[at : at + ROW_BYTES] for at in range(0, len(content), ROW_BYTES)]


def row_tag(output: bytes, epoch: int, class_id: bytes) -> bytes:
    """The first bytes of the row of a VOPRF output; a list of revoked rows names rows by them."""
    return _row_key(output, epoch, class_id)[0]


def open_row(table: Sequence[bytes], output: bytes, epoch: int, class_id: bytes) -> VerdictRow | None:
    """The row this VOPRF output opens, or None. A row that this release cannot judge counts as absent."""
    plain = open_bytes(table, output, epoch, class_id)
    return None if plain is None else readable(plain)


def open_bytes(table: Sequence[bytes], output: bytes, epoch: int, class_id: bytes) -> bytes | None:
    """The bytes of the row this VOPRF output opens, as they were sealed: also those of a row that only a later release
    can read. None without a row; one that does not authenticate counts as absent."""
    tag, key = _row_key(output, epoch, class_id)
    at = bisect_left(table, tag)
    if at == len(table) or table[at][:TAG_BYTES] != tag:
        return None
    try:
        return ChaCha20Poly1305(key).decrypt(_NONCE, table[at][TAG_BYTES:], length_prefixed(tag, u64(epoch), class_id))
    except InvalidTag:
        return None


def _row_key(output: bytes, epoch: int, class_id: bytes) -> tuple[bytes, bytes]:
    info = length_prefixed(b"pharoah/entry/v1", u64(epoch), class_id)
    material = HKDFExpand(SHA256(), 48, info).derive(output)
    return material[:TAG_BYTES], material[TAG_BYTES:]


def _stream(key: bytes, purpose: bytes, size: int) -> bytes:
    """`size` pseudorandom bytes (ChaCha20 under a key for this purpose alone)."""
    cipher = Cipher(ChaCha20(HKDFExpand(SHA256(), 32, purpose).derive(key), bytes(16)), mode=None)
    return cipher.encryptor().update(bytes(size))
