"""Portable tables: what is signed, what is refused, and how weak an imported row is."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from pharoah_learning.incompatibility import learn_incompatibilities
from pharoah_learning.portable_table import (
    Imported,
    PortableTable,
    PortableTableError,
    _sign,
    exportable,
    import_rows,
    read_table,
    write_table,
)
from pharoah_learning.release import LearnedRow, Release, SealInputs, identity
from pharoah_learning.sealing import groups_of, seal, verdict_row
from pharoah_protocol.tables.epoch_head import sign
from pharoah_protocol.tables.rows import VerdictRow
from pharoah_protocol.vocabulary import Grade, Outcome, Provenance, RowKind, Rung, Scope, Severity
from tests.learning.test_row_evidence import campaign

KEY, OTHER_KEY = (Ed25519PrivateKey.from_private_bytes(bytes([n]) * 32) for n in (1, 2))
PUBLIC = KEY.public_key().public_bytes_raw()
FACTS = ("device=a CPU", "isa=avx2")
DEVICE = identity(FACTS)
SEEN = [replace(one, device_id=DEVICE) for one in campaign()]
LEARNED = learn_incompatibilities(SEEN)
ROWS = tuple(exportable(LEARNED, {DEVICE: FACTS}))
TABLE = PortableTable(7, 1000.0, {DEVICE: FACTS}, ROWS)


def test_what_is_exported_is_about_device_models_that_are_described() -> None:
    assert ROWS and {row.scope for row in ROWS} == {Scope.DEVICE}
    assert not exportable(LEARNED, {})
    assert not exportable([replace(ROWS[0], kind=RowKind.BAND)], {DEVICE: FACTS})
    assert not exportable([replace(ROWS[0], provenance=Provenance.IMPORTED)], {DEVICE: FACTS}), "nobody passes on words"


def test_an_imported_row_has_its_counts_and_warns_at_most() -> None:
    read = read_table(write_table(TABLE, KEY), PUBLIC)
    assert (read.release, read.made_at, dict(read.devices)) == (7, 1000.0, {DEVICE: FACTS})
    assert len(read.rows) == len(ROWS)
    for row, imported in zip(ROWS, read.rows, strict=True):
        assert (row.id, row.tokens, row.failures, row.runs, row.base_runs) == (
            imported.id,
            imported.tokens,
            imported.failures,
            imported.runs,
            imported.base_runs,
        )
        assert (imported.provenance, imported.grade) == (Provenance.IMPORTED, Grade.ASSOCIATION)
        assert imported.severity is (Severity.OK if row.severity is Severity.OK else Severity.WARN)
        assert VerdictRow.unpack(verdict_row(imported).pack()).provenance is Provenance.IMPORTED


def test_own_trials_win_and_of_two_providers_the_one_with_more_runs() -> None:
    foreign = read_table(write_table(TABLE, KEY), PUBLIC)
    first = foreign.rows[0]
    assert first.id not in {row.id for row in import_rows([ROWS[0]], [Imported("a", foreign)])}
    more = replace(foreign, rows=(replace(first, runs=first.runs + 1),))
    for order in ([Imported("a", foreign), Imported("b", more)], [Imported("b", foreign), Imported("a", more)]):
        found = {row.id: row for row in import_rows([], order)}
        assert found[first.id].runs == first.runs + 1 and list(found) == sorted(found)


def test_a_table_that_is_not_signed_by_the_key_is_refused() -> None:
    text = write_table(TABLE, KEY)
    with pytest.raises(PortableTableError, match="not signed by the given key"):
        read_table(text, OTHER_KEY.public_key().public_bytes_raw())
    data = json.loads(text)
    changed = json.dumps({**data, "table": data["table"].replace('"release": 7', '"release": 8')})
    with pytest.raises(PortableTableError, match="not signed by the given key"):
        read_table(changed, PUBLIC)
    surrogate = json.dumps({**data, "table": "\ud800"})
    for broken in ("", "[]", "{}", json.dumps({**data, "signature": "zz"}), '{"table": 1, "signature": ""}', surrogate):
        with pytest.raises(PortableTableError):
            read_table(broken, PUBLIC)


def signed(change: Callable[[dict[str, Any]], None]) -> str:
    """A table that its provider has changed and signed."""
    data = json.loads(json.loads(write_table(TABLE, KEY))["table"])
    change(data)
    return signed_text(json.dumps(data))


def again(tokens: Callable[[list[str]], list[str]]) -> Callable[[dict[str, Any]], None]:
    """The first row once more, with its tokens written in another way."""
    return lambda data: data["rows"].append({**data["rows"][0], "tokens": tokens(data["rows"][0]["tokens"])})


def in_row(**fields: Any) -> Callable[[dict[str, Any]], None]:
    return lambda data: data["rows"][1].update(fields)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda data: data.update(format=2), "format 2: this release of Pharoah reads format 1"),
        (lambda data: data.pop("devices"), "lacks a field"),
        (lambda data: data.update(rows=None), "lacks a field"),
        (lambda data: data.update(devices={DEVICE: ["device=another"]}), "is not the id of the facts"),
        (lambda data: data.update(devices={}), "row 0: .*device model that the table describes"),
        (lambda data: data["rows"].append(data["rows"][0]), "one of them is there twice"),
        (again(tokens=lambda tokens: tokens[::-1]), "one of them is there twice, as row 0 and row [1-9]"),
        (again(tokens=lambda tokens: [token.upper() for token in tokens]), "one of them is there twice"),
        (again(tokens=lambda tokens: [*tokens, tokens[0]]), "one of them is there twice"),
        (lambda data: data.update(release="seven"), "has one of another type"),
        (lambda data: data.update(release=float("inf")), "has one of another type"),
        (lambda data: data.update(made_at="yesterday"), "has one of another type"),
        (lambda data: data.update(made_at=10**400), "has one of another type"),
        (lambda data: data.update(made_at=float("nan")), "NaN is no number"),
        (lambda data: data.update(devices={DEVICE: ["\ud800"]}), "has one of another type"),
        (in_row(scope="server"), "row 1: .*server"),
        (in_row(failures=10**6), "row 1: it has more failures than runs"),
        (in_row(runs=0, failures=0), "row 1: it has more failures than runs, or no run"),
        (in_row(runs=-1), "row 1: a count"),
        (in_row(runs=1.5), "row 1: a count"),
        (in_row(runs=True), "row 1: a count"),
        (in_row(severity="fatal"), "row 1: "),
        (in_row(severity="ok", outcome="memory"), "row 1: severity ok does not go with outcome memory"),
        (in_row(outcome="other", severity="warn"), "row 1: severity warn does not go with outcome other"),
        (in_row(rung="any"), "row 1: "),
        (in_row(tokens=[]), "row 1: its tokens"),
        (in_row(tokens=["x" * 70_000]), "row 1: "),
        (in_row(tokens=[7]), "row 1: a text"),
        (in_row(title=None), "row 1: a text"),
        (in_row(evidence="ab"), "row 1: its remedy or the name of its evidence"),
        (in_row(evidence="zz" * 8), "row 1: "),
        (in_row(remedy=1 << 20), "row 1: its remedy"),
    ],
)
def test_a_table_with_an_error_is_refused_with_its_place(
    change: Callable[[dict[str, Any]], None], expected: str
) -> None:
    with pytest.raises(PortableTableError, match=expected):
        read_table(signed(change), PUBLIC)


def signed_text(text: str) -> str:
    return json.dumps({"table": text, "signature": sign(_sign(text), KEY).hex()})


@pytest.mark.parametrize("text", ["", "{", "1" * 5000, "[" * 100_000])
def test_what_a_provider_has_signed_need_not_be_a_table(text: str) -> None:
    with pytest.raises(PortableTableError, match="the table lacks a field or has one of another type"):
        read_table(signed_text(text), PUBLIC)


@pytest.mark.parametrize("write", [lambda tokens: tokens[::-1], lambda tokens: [token.upper() for token in tokens]])
def test_an_imported_row_cannot_take_the_place_of_an_own_one_by_writing_its_tokens_in_another_way(
    write: Callable[[list[str]], list[str]],
) -> None:
    """Both rows would be sealed under one input, and no release could be sealed."""
    foreign = read_table(signed(in_row(tokens=write(list(ROWS[1].tokens)))), PUBLIC)
    own = [row for row in LEARNED if row.scope is Scope.DEVICE]
    assert import_rows(own, [Imported("a", foreign)]) == []
    both = import_rows([], [Imported("a", foreign), Imported("b", read_table(write_table(TABLE, KEY), PUBLIC))])
    assert len(both) == len(ROWS)
    inputs = SealInputs(1, Release(1, tuple(both)), tuple(groups_of(both)), 1000)
    assert seal(inputs, bytes(32), KEY).classes


def test_a_title_cannot_control_a_terminal() -> None:
    read = read_table(signed(in_row(title="\x1b[2Jgpt" + "x" * 900)), PUBLIC)
    assert "\x1b" not in read.rows[1].title and len(read.rows[1].title) <= 200


def test_a_device_row_needs_trials_of_its_own_to_be_strong() -> None:
    own = LearnedRow(
        scope=Scope.DEVICE,
        group_id=DEVICE,
        rung=Rung.EXACT,
        tokens=("archetype=x",),
        severity=Severity.BLOCK,
        outcome=Outcome.CRASH,
        failures=9,
        runs=9,
        base_failures=0,
        base_runs=40,
        remedy=0,
        grade=Grade.MATCHED,
    )
    strong = PortableTable(1, 1.0, {DEVICE: FACTS}, (own,))
    (row,) = read_table(write_table(strong, KEY), PUBLIC).rows
    assert (row.severity, row.grade) == (Severity.WARN, Grade.ASSOCIATION)
