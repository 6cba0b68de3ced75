"""Portable tables: rows about device models that one provider signs and another one imports.

A context is a provider's own, but a device model is described by facts that all agents state in the same words, so only
rows of scope `device` travel, with the facts of their device. What is imported is the word of others: it warns at most,
its grade is association, and a row of the provider's own trials about the same job and device replaces it (ADR 41).

The file is JSON with two fields: `table` is the text that was signed, `signature` is hexadecimal.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any, NamedTuple

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from pharoah_archetypes.ladder import length_prefixed
from pharoah_learning.context_rule import identity
from pharoah_learning.limits import limit_named
from pharoah_learning.release import LearnedRow
from pharoah_learning.sealing import compute_learned_input
from pharoah_protocol.bounds import MAX_INPUT_BYTES, MAX_TABLE_BYTES
from pharoah_protocol.tables.epoch_head import is_signed, sign
from pharoah_protocol.tables.rows import EVIDENCE_BYTES
from pharoah_protocol.vocabulary import DeviceKind, Grade, Outcome, Provenance, RowKind, Scope, Severity
from pharoah_system.bounded_reading import parse_json
from pharoah_system.text import sanitize_text

FORMAT = 1
MAX_DEVICES, MAX_ROWS, MAX_FACTS = 64, 1 << 16, 64
"""What one table may have: its device models become tables of the next epoch, which has room for 4,096."""
MAX_COUNT = 1 << 32
MAX_BYTES = MAX_TABLE_BYTES
"""About 2,000 rows."""
MAX_TITLE_LENGTH = 200
MAX_REMEDY = 0xFFFF
_MAGIC = b"pharoah/portable-table/v1"
"""Signed before the text, so that the signature is valid for nothing else."""
_TEXTS = ("scope", "group_id", "rung", "severity", "outcome", "title", "evidence")
_COUNTS = ("failures", "runs", "base_failures", "base_runs", "remedy")


class PortableTableError(ValueError):
    """A text that is no portable table of this signer; the message names the field or the row."""


@dataclass(frozen=True)
class PortableTable:
    """Rows of one release of one provider."""

    release: int
    made_at: float
    """When their evidence was read, unix seconds."""
    devices: Mapping[str, tuple[str, ...]]
    """Id of a device model to the facts that describe it."""
    rows: tuple[LearnedRow, ...]


class _Subject(NamedTuple):
    """What a row is about, however its tokens are ordered and written: two rows of one subject cannot be sealed."""

    scope: Scope
    group_id: str
    input: bytes

    @classmethod
    def from_row(cls, row: LearnedRow) -> _Subject:
        return cls(row.scope, row.group_id, compute_learned_input(row))


class Imported(NamedTuple):
    """A table, and what its importer calls the provider that has signed it."""

    provider: str
    table: PortableTable


def exportable(rows: Iterable[LearnedRow], devices: Mapping[str, Sequence[str]]) -> list[LearnedRow]:
    """Rows that others can use: about archetypes on device models that are described, from own campaigns."""
    return [
        row
        for row in rows
        if row.scope is Scope.DEVICE
        and row.kind is RowKind.ARCHETYPE
        and row.provenance is Provenance.CAMPAIGN
        and row.group_id in devices
    ]


def write_table(table: PortableTable, key: Ed25519PrivateKey) -> str:
    """The signed text."""
    text = json.dumps(
        {
            "format": FORMAT,
            "release": table.release,
            "made_at": table.made_at,
            "devices": {name: sorted(facts) for name, facts in table.devices.items()},
            "rows": [
                {name: getattr(row, name) for name in (*_TEXTS, *_COUNTS)} | {"tokens": list(row.tokens)}
                for row in table.rows
            ],
        }
    )
    return json.dumps({"table": text, "signature": sign(_sign(text), key).hex()}) + "\n"


def read_table(content: str, public: bytes) -> PortableTable:
    """The table of a signed text, with its rows as an importer uses them. Raises PortableTableError."""
    try:
        data = parse_json(content, "table")
        text, signature = data["table"], bytes.fromhex(data["signature"])
        signer, signed = Ed25519PublicKey.from_public_bytes(public), _sign(text)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise PortableTableError("not a portable table: expected JSON with `table` and `signature`") from None
    if not is_signed(signed, signature, signer):
        raise PortableTableError("the table is not signed by the given key")
    try:
        return _read(parse_json(text, "table"))
    except PortableTableError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise PortableTableError(f"the table lacks a field or has one of another type: {error}") from None


def import_rows(own: Iterable[LearnedRow], tables: Iterable[Imported]) -> list[LearnedRow]:
    """Rows of other providers about what no own row is about, in the order of their ids.

    Where two providers have the same row, the one with more runs counts.
    """
    known = {_Subject.from_row(row) for row in own}
    chosen: dict[_Subject, LearnedRow] = {}
    for _, table in sorted(tables, key=lambda one: one.provider):
        for row in table.rows:
            subject = _Subject.from_row(row)
            if subject not in known and (subject not in chosen or row.runs > chosen[subject].runs):
                chosen[subject] = row
    return [row for _, row in sorted(chosen.items(), key=lambda one: (one[1].id, one[0]))]


def _sign(text: str) -> bytes:
    return length_prefixed(_MAGIC) + text.encode()


def _read(data: dict[str, Any]) -> PortableTable:
    if data["format"] != FORMAT:
        raise PortableTableError(f"format {data['format']!r}: this release of Pharoah reads format {FORMAT}")
    devices = {name: tuple(facts) for name, facts in data["devices"].items()}
    if len(devices) > MAX_DEVICES or len(data["rows"]) > MAX_ROWS:
        raise PortableTableError(f"devices, rows: at most {MAX_DEVICES} device models and {MAX_ROWS} rows")
    for name, facts in devices.items():
        if len(facts) > MAX_FACTS or not all(isinstance(fact, str) for fact in facts) or identity(facts) != name:
            raise PortableTableError(f"devices: {name!r} is not the id of the facts that describe it")
    rows = [_row(number, row, devices) for number, row in enumerate(data["rows"])]
    _check_different(rows)
    release, made_at = int(data["release"]), float(data["made_at"])
    if not isfinite(made_at):
        raise PortableTableError(f"made_at: {made_at} is not a time")
    return PortableTable(release, made_at, devices, tuple(rows))


def _check_different(rows: Sequence[LearnedRow]) -> None:
    """Raise PortableTableError for two rows of one subject."""
    places: dict[_Subject, int] = {}
    for number, row in enumerate(rows):
        first = places.setdefault(_Subject.from_row(row), number)
        if first != number:
            raise PortableTableError(f"rows: one of them is there twice, as row {first} and row {number}")


def _row(number: int, data: dict[str, Any], devices: Mapping[str, Sequence[str]]) -> LearnedRow:
    """One row as it is imported. Raises PortableTableError that names it."""
    try:
        texts = {name: data[name] for name in _TEXTS}
        counts = {name: data[name] for name in _COUNTS}
        if not all(type(value) is int and 0 <= value <= MAX_COUNT for value in counts.values()):
            raise ValueError("a count is not a whole number, or has no reason")
        if not all(isinstance(value, str) for value in (*texts.values(), *data["tokens"])):
            raise ValueError("a text is something else")
        row = LearnedRow.from_dict({**texts, **counts, "tokens": data["tokens"]})
        _check(row, devices)
    except (KeyError, TypeError, ValueError) as error:
        raise PortableTableError(f"row {number}: {error}") from None
    return _weaken(row, devices[row.group_id])


def _check(row: LearnedRow, devices: Mapping[str, Sequence[str]]) -> None:
    if row.scope is not Scope.DEVICE or row.group_id not in devices:
        raise ValueError(f"it is not about a device model that the table describes: {row.scope} {row.group_id}")
    if row.failures > row.runs or row.base_failures > row.base_runs or not row.runs:
        raise ValueError("it has more failures than runs, or no run")
    if row.remedy > MAX_REMEDY or len(bytes.fromhex(row.evidence)) not in (0, EVIDENCE_BYTES):
        raise ValueError("its remedy or the name of its evidence cannot be sealed")
    if not row.tokens or len(compute_learned_input(row)) > MAX_INPUT_BYTES:
        raise ValueError("its tokens cannot be sealed")
    if row.outcome is Outcome.OTHER or (row.severity is Severity.OK) is not (row.outcome is Outcome.OK):
        raise ValueError(f"severity {row.severity} does not go with outcome {row.outcome}")


def _weaken(row: LearnedRow, facts: Sequence[str]) -> LearnedRow:
    """The word of others: it warns at most, and nobody here can check its controls, or what its nodes had."""
    device = DeviceKind.CUDA if any(fact.startswith("gpu=") for fact in facts) else DeviceKind.CPU
    highest = Severity.WARN if limit_named(row.outcome, "", device) is None else Severity.INFO
    return replace(
        row,
        severity=min(row.severity, highest, key=lambda one: one.strength),
        title=sanitize_text(row.title, MAX_TITLE_LENGTH),
        provenance=Provenance.IMPORTED,
        grade=Grade.ASSOCIATION,
    )
