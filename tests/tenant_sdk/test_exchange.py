"""The cryptography both sides share: published vectors, round trips, and everything that must be refused."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st

from pharoah.exchange import group, voprf
from pharoah.exchange.group import GroupError
from pharoah.exchange.head import ClassTable, EpochHead, HeadError, merkle_root, sign_head, verify_head
from pharoah.exchange.rows import OUTCOMES, RUNG_CODES, SEVERITIES, VerdictRow, open_row, seal_table
from pharoah.exchange.ticket import Ticket, TicketError

VECTORS = json.loads(Path(__file__).parents[1].joinpath("data/voprf_rfc9497.json").read_text())
CLASS = bytes(range(16))
rows = st.builds(
    VerdictRow,
    st.sampled_from(SEVERITIES),
    st.sampled_from(OUTCOMES),
    st.sampled_from(RUNG_CODES),
    *[st.integers(0, 0xFFFF)] * 5,
    st.integers(0, 3),
    st.binary(min_size=16, max_size=16),
)


def items(vector: dict[str, str]) -> list[dict[str, bytes]]:
    names = ("Input", "Blind", "BlindedElement", "EvaluationElement", "Output")
    columns = [[bytes.fromhex(value) for value in vector[name].split(",")] for name in names]
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


def test_rfc9497_key_derivation() -> None:
    secret, public = voprf.derive_key(bytes.fromhex(VECTORS["seed"]), bytes.fromhex(VECTORS["keyInfo"]))
    assert (secret.hex(), public.hex()) == (VECTORS["skSm"], VECTORS["pkSm"])


@pytest.mark.parametrize("item", [item for vector in VECTORS["vectors"] for item in items(vector)])
def test_rfc9497_vectors(item: dict[str, bytes]) -> None:
    secret = bytes.fromhex(VECTORS["skSm"])
    assert voprf.blind(item["Input"], item["Blind"])[1] == item["BlindedElement"]
    assert voprf.evaluate(secret, item["BlindedElement"]) == item["EvaluationElement"]
    assert voprf.finalize(item["Input"], item["Blind"], item["EvaluationElement"]) == item["Output"]
    assert voprf.full_evaluate(secret, item["Input"]) == item["Output"]


@given(st.binary(max_size=100), st.binary(min_size=32, max_size=32))
@settings(max_examples=30)
def test_blinding_does_not_change_the_output(value: bytes, seed: bytes) -> None:
    secret, _ = voprf.derive_key(seed, b"test")
    first, second = voprf.blind(value), voprf.blind(value)
    assert first[1] != second[1]
    outputs = {voprf.finalize(value, scalar, voprf.evaluate(secret, element)) for scalar, element in (first, second)}
    assert outputs == {voprf.full_evaluate(secret, value)}


@pytest.mark.parametrize("element", [b"", bytes(31), bytes(33), bytes(32), b"\xff" * 32, b"\x01" + bytes(31)])
def test_what_is_no_element_is_refused(element: bytes) -> None:
    secret, _ = voprf.derive_key(bytes(32), b"test")
    with pytest.raises(GroupError):
        voprf.evaluate(secret, element)


@pytest.mark.parametrize("scalar", [bytes(32), group.ORDER.to_bytes(32, "little"), b"\xff" * 32, bytes(5)])
def test_scalars_outside_the_group_are_refused(scalar: bytes) -> None:
    with pytest.raises(GroupError):
        group.multiply_base(scalar)


@given(rows)
def test_a_row_survives_packing(row: VerdictRow) -> None:
    assert len(row.pack()) == 32
    assert VerdictRow.unpack(row.pack()) == row


def test_counts_saturate_instead_of_wrapping() -> None:
    assert VerdictRow.unpack(VerdictRow("ok", "ok", "exact", 0, 70_000, 0, 0).pack()).runs == 0xFFFF


@given(st.integers(0, 130))
@settings(max_examples=15)
def test_only_the_right_output_opens_a_row_and_sizes_say_little(count: int) -> None:
    outputs = [bytes([i]) * 64 for i in range(count)]
    row = VerdictRow("block", "nan", "exact", 5, 5, 0, 20)
    table = seal_table([(output, row) for output in outputs], 7, CLASS)
    assert len(table) in (64, 128, 256)
    assert all(open_row(table, output, 7, CLASS) == row for output in outputs)
    assert open_row(table, b"\xee" * 64, 7, CLASS) is None
    assert all(open_row(table, output, 8, CLASS) is None for output in outputs)


def test_one_key_never_seals_two_rows() -> None:
    row = VerdictRow("ok", "ok", "exact", 0, 1, 0, 0)
    with pytest.raises(ValueError, match="twice"):
        seal_table([(bytes(64), row), (bytes(64), row)], 1, CLASS)


def test_a_changed_row_counts_as_absent() -> None:
    output = b"\x07" * 64
    table = seal_table([(output, VerdictRow("ok", "ok", "exact", 0, 1, 0, 0))], 1, CLASS)
    changed = [row[:-1] + bytes([row[-1] ^ 1]) for row in table]
    assert open_row(table, output, 1, CLASS) is not None
    assert open_row(changed, output, 1, CLASS) is None


def head() -> EpochHead:
    return EpochHead(4, 2, 1000, 2000, (ClassTable(CLASS, bytes(32), 64, bytes(32)),))


def test_a_head_holds_for_its_key_and_its_time_only() -> None:
    key = Ed25519PrivateKey.generate()
    body, signature = sign_head(head(), key)
    assert verify_head(body, signature, key.public_key(), 1500) == head()
    for now in (999, 2001):
        with pytest.raises(HeadError, match="clock"):
            verify_head(body, signature, key.public_key(), now)
    with pytest.raises(HeadError, match="signed"):
        verify_head(body, signature, Ed25519PrivateKey.generate().public_key(), 1500)


@given(st.integers(0, 200), st.integers(0, 7))
def test_no_single_bit_of_a_head_can_change(position: int, bit: int) -> None:
    key = Ed25519PrivateKey.from_private_bytes(bytes(32))
    body, signature = sign_head(head(), key)
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


def test_merkle_roots_of_rfc6962() -> None:
    # Test vectors of the reference implementation of RFC 6962 (certificate-transparency, merkle tree tests).
    leaves = [
        "",
        "00",
        "10",
        "2021",
        "3031",
        "40414243",
        "5051525354555657",
        "606162636465666768696a6b6c6d6e6f",
    ]
    data = [bytes.fromhex(leaf) for leaf in leaves]
    assert merkle_root([]).hex() == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert merkle_root(data[:1]).hex() == "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d"
    assert merkle_root(data[:3]).hex() == "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77"
    assert merkle_root(data).hex() == "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328"


def test_a_ticket_is_good_for_its_node_and_minutes() -> None:
    key, now = Ed25519PrivateKey.generate(), time.time()
    body, signature = Ticket.issue("n1", "boot", key, now)
    assert Ticket.verify(body, signature, key.public_key(), now).node == "n1"
    with pytest.raises(TicketError, match="expired"):
        Ticket.verify(body, signature, key.public_key(), now + 3600)
    with pytest.raises(TicketError, match="signed"):
        Ticket.verify(body.replace(b"n1", b"n2"), signature, key.public_key(), now)
    with pytest.raises(TicketError, match="malformed"):
        Ticket.read(b"{}")
