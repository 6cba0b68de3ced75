"""Rows and epoch heads: round trips, and everything that must be refused."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st

from pharoah_protocol.tables import signed_messages
from pharoah_protocol.tables.epoch_head import (
    EARLY_SECONDS,
    MAX_LIFE_SECONDS,
    MAX_ROWS,
    ClassTable,
    EpochHead,
    HeadError,
    sign,
    verify_head,
)
from pharoah_protocol.tables.rows import VerdictRow, open_row, readable, seal_table
from pharoah_protocol.vocabulary import Grade, Outcome, Provenance, Rung, Severity

CLASS = bytes(range(16))
rows = st.builds(
    VerdictRow,
    st.sampled_from(Severity),
    st.sampled_from(Outcome),
    st.sampled_from(Rung),
    *[st.integers(0, 0xFFFF)] * 5,
    st.binary(min_size=8, max_size=8),
    st.sampled_from(Provenance),
    st.sampled_from(Grade),
    st.binary(min_size=8, max_size=8),
)


@given(rows)
def test_a_packed_row_is_read_back(row: VerdictRow) -> None:
    assert len(row.pack()) == 32
    assert VerdictRow.unpack(row.pack()) == row


FIRST_FORMAT = bytes.fromhex("01030000050201010000000000000000000000000000000500050000001903" + "00")
"""A row of format 1: block, NaN, remedy 5, rung `major`, plan 1, 5 of 5 failed, 0 of 25 controls."""


def test_rows_of_the_first_format_are_still_read() -> None:
    row = VerdictRow.unpack(FIRST_FORMAT)
    assert (row.severity, row.outcome, row.rung, row.remedy) == (Severity.BLOCK, Outcome.NAN, Rung.MAJOR, 5)
    assert (row.failures, row.runs, row.base_failures, row.base_runs) == (5, 5, 0, 25)
    assert row.plan == bytes([1, 1]).ljust(8, b"\0") and not any(row.evidence)


_FIRST_FREE = 1 + max(one.code for kind in (Provenance, Grade) for one in kind if one.value != "other")


@given(rows, st.integers(10, 254), st.integers(_FIRST_FREE, 14))
def test_what_only_a_later_release_has_a_name_for_is_read_as_other(row: VerdictRow, outcome: int, half: int) -> None:
    data = bytearray(row.pack())
    data[2], data[-10] = half << 4 | half, outcome
    read = VerdictRow.unpack(bytes(data))
    assert (read.outcome, read.provenance, read.grade) == (Outcome.OTHER, Provenance.OTHER, Grade.OTHER)
    assert (read.severity, read.rung, read.runs) == (row.severity, row.rung, row.runs)


@pytest.mark.parametrize(("at", "value"), [(0, 3), (1, 2), (5, 9)])
def test_a_row_whose_format_severity_or_rung_is_not_known_counts_as_absent(at: int, value: int) -> None:
    data = bytearray(VerdictRow(Severity.OK, Outcome.OK, Rung.EXACT, 0, 1, 0, 0).pack())
    data[at] = value
    assert readable(bytes(data)) is None and readable(b"") is None


def test_counts_saturate_instead_of_wrapping() -> None:
    assert VerdictRow.unpack(VerdictRow(Severity.OK, Outcome.OK, Rung.EXACT, 0, 70_000, 0, 0).pack()).runs == 0xFFFF


@given(st.integers(0, 130))
@settings(max_examples=15)
def test_only_the_right_output_opens_a_row_and_sizes_are_padded(count: int) -> None:
    outputs = [bytes([i]) * 64 for i in range(count)]
    row = VerdictRow(Severity.BLOCK, Outcome.NAN, Rung.EXACT, 5, 5, 0, 20)
    table = seal_table([(output, row) for output in outputs], 7, CLASS, bytes(32))
    assert len(table) in (64, 128, 256)
    assert all(open_row(table, output, 7, CLASS) == row for output in outputs)
    assert open_row(table, b"\xee" * 64, 7, CLASS) is None
    assert all(open_row(table, output, 8, CLASS) is None for output in outputs)


def test_two_rows_under_one_key_are_refused() -> None:
    row = VerdictRow(Severity.OK, Outcome.OK, Rung.EXACT, 0, 1, 0, 0)
    with pytest.raises(ValueError, match="twice"):
        seal_table([(bytes(64), row), (bytes(64), row)], 1, CLASS, bytes(32))


def test_a_changed_row_counts_as_absent() -> None:
    output = b"\x07" * 64
    table = seal_table([(output, VerdictRow(Severity.OK, Outcome.OK, Rung.EXACT, 0, 1, 0, 0))], 1, CLASS, bytes(32))
    changed = [row[:-1] + bytes([row[-1] ^ 1]) for row in table]
    assert open_row(table, output, 1, CLASS) is not None
    assert open_row(changed, output, 1, CLASS) is None


def head() -> EpochHead:
    return EpochHead(4, 2, 1000, 2000, (ClassTable(CLASS, bytes(32), 64, bytes(32)),))


def test_a_head_holds_for_its_key_and_its_time_only() -> None:
    key = Ed25519PrivateKey.generate()
    body = head().encode()
    signature = sign(body, key)
    assert verify_head(body, signature, key.public_key(), 1500) == head()
    assert verify_head(body, signature, key.public_key(), 1000 - EARLY_SECONDS) == head(), "clocks differ"
    for now in (999 - EARLY_SECONDS, 2001):
        with pytest.raises(HeadError, match="clock"):
            verify_head(body, signature, key.public_key(), now)
    with pytest.raises(HeadError, match="signed"):
        verify_head(body, signature, Ed25519PrivateKey.generate().public_key(), 1500)


def test_a_head_that_lasts_for_years_is_not_accepted() -> None:
    key = Ed25519PrivateKey.generate()
    for life, accepted in ((MAX_LIFE_SECONDS, True), (MAX_LIFE_SECONDS + 1, False), (2**60, False)):
        body = replace(head(), not_after=1000 + life).encode()
        with nullcontext() if accepted else pytest.raises(HeadError, match="26 hours"):
            verify_head(body, sign(body, key), key.public_key(), 1500)


@given(st.integers(0, 200), st.integers(0, 7))
def test_no_single_bit_of_a_head_can_change(position: int, bit: int) -> None:
    key = Ed25519PrivateKey.from_private_bytes(bytes(32))
    body = head().encode()
    signature = sign(body, key)
    at = position % len(body)
    forged = body[:at] + bytes([body[at] ^ (1 << bit)]) + body[at + 1 :]
    with pytest.raises(HeadError):
        verify_head(forged, signature, key.public_key(), 1500)


@given(st.binary(max_size=300))
def test_any_bytes_are_a_head_or_an_error(data: bytes) -> None:
    try:
        assert EpochHead.decode(data).encode() == data
    except HeadError:
        pass


@pytest.mark.parametrize(
    "tables",
    [
        (ClassTable(CLASS, bytes(32), 64, bytes(32)),) * 2,
        (ClassTable(CLASS, bytes(32), 0, bytes(32)),),
        (ClassTable(CLASS, bytes(32), MAX_ROWS + 1, bytes(32)),),
        (ClassTable(b"short", bytes(32), 64, bytes(32)),),
        (ClassTable(CLASS, bytes(31), 64, bytes(32)),),
    ],
)
def test_heads_beyond_their_limits_are_refused(tables: tuple[ClassTable, ...]) -> None:
    with pytest.raises(HeadError):
        EpochHead.decode(EpochHead(1, 1, 0, 1, tables).encode())


def test_padding_follows_from_its_key_and_shares_nothing_between_epochs() -> None:
    first = seal_table([], 1, CLASS, bytes(32))
    assert first == seal_table([], 1, CLASS, bytes(32)) and len(set(first)) == 64
    for other in (
        seal_table([], 2, CLASS, bytes(32)),
        seal_table([], 1, CLASS[::-1], bytes(32)),
        seal_table([], 1, CLASS, b"k" * 32),
    ):
        assert not set(first) & set(other)


@given(st.sets(st.binary(min_size=32, max_size=32), max_size=5))
def test_a_list_of_revoked_rows_is_read_back(rows: set[bytes]) -> None:
    assert signed_messages.read_revoked(signed_messages.encode_revoked(7, rows)) == (7, rows)


@given(st.binary(max_size=100))
def test_any_bytes_are_a_list_of_revoked_rows_or_an_error(data: bytes) -> None:
    try:
        epoch, rows = signed_messages.read_revoked(data)
        assert signed_messages.encode_revoked(epoch, rows) == data
    except signed_messages.StatementError:
        pass
