"""RFC 9497 on both groups: the published vectors, each group against the other, and forgeries of every kind."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pharoah_protocol.voprf import group, libsodium, protocol, pure_python
from pharoah_protocol.voprf.group import GroupError

VECTORS = json.loads(Path(__file__).parents[1].joinpath("data/voprf_rfc9497.json").read_text())
SECRET, PUBLIC = bytes.fromhex(VECTORS["skSm"]), bytes.fromhex(VECTORS["pkSm"])
TOP_BIT = (lambda element: element[:31] + bytes([element[31] | 0x80]))(libsodium.from_hash(b"x" * 64))
scalars = st.integers(1, group.ORDER - 1).map(lambda n: n.to_bytes(32, "little"))
elements = st.binary(min_size=64, max_size=64).filter(any).map(libsodium.from_hash)


@pytest.fixture(params=[libsodium, pure_python], ids=["libsodium", "python"])
def on_each_group(request: Any) -> Iterator[None]:
    with group.using(request.param):
        yield


def column(vector: dict[str, Any], name: str) -> list[bytes]:
    return [bytes.fromhex(value) for value in vector[name].split(",")]


@pytest.mark.usefixtures("on_each_group")
def test_rfc9497_key_derivation() -> None:
    derived = protocol.derive_key(bytes.fromhex(VECTORS["seed"]), bytes.fromhex(VECTORS["keyInfo"]))
    assert derived == (SECRET, PUBLIC)


@pytest.mark.usefixtures("on_each_group")
@pytest.mark.parametrize("vector", VECTORS["vectors"])
def test_rfc9497_vectors(vector: dict[str, Any]) -> None:
    inputs, blinds = column(vector, "Input"), column(vector, "Blind")
    blinded = [protocol.blind(value, scalar)[1] for value, scalar in zip(inputs, blinds, strict=True)]
    assert blinded == column(vector, "BlindedElement")
    evaluated, proof = protocol.evaluate(SECRET, PUBLIC, blinded, bytes.fromhex(vector["Proof"]["r"]))
    assert evaluated == column(vector, "EvaluationElement")
    assert proof.hex() == vector["Proof"]["proof"]
    protocol.verify(PUBLIC, blinded, evaluated, proof)
    outputs = [protocol.finalize(*item) for item in zip(inputs, blinds, evaluated, strict=True)]
    assert outputs == column(vector, "Output") == [protocol.full_evaluate(SECRET, value) for value in inputs]


@given(scalars, scalars, elements, elements, st.binary(min_size=64, max_size=64))
@settings(max_examples=25)
def test_the_two_groups_are_one(a: bytes, b: bytes, x: bytes, y: bytes, digest: bytes) -> None:
    assert libsodium.multiply(a, x) == pure_python.multiply(a, x)
    assert libsodium.multiply_base(a) == pure_python.multiply_base(a)
    assert libsodium.from_hash(digest) == pure_python.from_hash(digest)
    assert libsodium.compute_weighted_sum([a, b], [x, y]) == pure_python.compute_weighted_sum([a, b], [x, y])


@given(st.binary(min_size=32, max_size=32), elements, st.integers(0, 255))
@settings(max_examples=150)
def test_the_two_groups_refuse_the_same_bytes(noise: bytes, element: bytes, bit: int) -> None:
    flipped = bytearray(element)
    flipped[bit // 8] ^= 1 << bit % 8
    for data in (noise, element, bytes(flipped), bytes(32), group.ORDER.to_bytes(32, "little")):
        assert libsodium.is_element(data) == pure_python.is_element(data)


def test_bad_encodings_of_rfc9496_are_refused() -> None:
    # Appendix A.2: non-canonical field elements, negative field elements, non-square and negative values, y = 0.
    bad = [
        "00ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
        "f3ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "0100000000000000000000000000000000000000000000000000000000000000",
        "01ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "ed57ffd8c914fb201471d1c3d245ce3c746fcbe63a3679d51b6a516ebebe0e20",
        "26948d35ca62e643e26a83177332e6b6afeb9d08e4268b650f1f5bbd8d81d371",
        "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    ]
    for encoding in map(bytes.fromhex, bad):
        assert not libsodium.is_element(encoding) and not pure_python.is_element(encoding)


@given(st.binary(max_size=100), st.binary(min_size=32, max_size=32))
@settings(max_examples=30)
def test_blinding_does_not_change_the_output(value: bytes, seed: bytes) -> None:
    secret, public = protocol.derive_key(seed, b"test")
    first, second = protocol.blind(value), protocol.blind(value)
    assert first[1] != second[1]
    evaluated, _ = protocol.evaluate(secret, public, [first[1], second[1]])
    outputs = {protocol.finalize(value, first[0], evaluated[0]), protocol.finalize(value, second[0], evaluated[1])}
    assert outputs == {protocol.full_evaluate(secret, value)}


@pytest.mark.usefixtures("on_each_group")
@pytest.mark.parametrize("element", [b"", bytes(31), bytes(33), bytes(32), b"\xff" * 32, b"\x01" + bytes(31), TOP_BIT])
def test_what_is_no_element_is_refused(element: bytes) -> None:
    good = protocol.blind(b"x")[1]
    with pytest.raises(GroupError):
        protocol.evaluate(SECRET, PUBLIC, [good, element])
    with pytest.raises(GroupError):
        group.multiply(SECRET, element)
    with pytest.raises(GroupError):
        group.compute_weighted_sum([SECRET, bytes(32)], [good, element])


@pytest.mark.usefixtures("on_each_group")
@pytest.mark.parametrize("scalar", [bytes(32), group.ORDER.to_bytes(32, "little"), b"\xff" * 32, bytes(5)])
def test_scalars_outside_the_group_are_refused(scalar: bytes) -> None:
    with pytest.raises(GroupError):
        group.multiply_base(scalar)
    with pytest.raises(GroupError):
        group.multiply(scalar, protocol.blind(b"x")[1])


class TestProofs:
    """A batch of four with its proof, and everything that must not pass for it."""

    blinded: ClassVar = [protocol.blind(bytes([i]))[1] for i in range(4)]
    evaluated, proof = protocol.evaluate(SECRET, PUBLIC, blinded)

    def rejected(self, public: bytes, blinded: list[bytes], evaluated: list[bytes], proof: bytes) -> None:
        for backend in (libsodium, pure_python):
            with group.using(backend), pytest.raises(protocol.ProofError):
                protocol.verify(public, blinded, evaluated, proof)

    def test_an_honest_one_passes_on_both_groups(self) -> None:
        for backend in (libsodium, pure_python):
            with group.using(backend):
                protocol.verify(PUBLIC, self.blinded, self.evaluated, self.proof)

    def test_another_key(self) -> None:
        other = protocol.derive_key(secrets.token_bytes(32), b"")
        self.rejected(PUBLIC, self.blinded, *protocol.evaluate(other[0], other[1], self.blinded))
        self.rejected(PUBLIC, self.blinded, *protocol.evaluate(other[0], PUBLIC, self.blinded))
        self.rejected(other[1], self.blinded, self.evaluated, self.proof)

    def test_one_item_by_another_key(self) -> None:
        other = protocol.derive_key(secrets.token_bytes(32), b"")
        swapped = protocol.evaluate(*other, self.blinded)[0][:1] + self.evaluated[1:]
        self.rejected(PUBLIC, self.blinded, swapped, self.proof)

    def test_items_swapped_added_or_left_out(self) -> None:
        first, second, *rest = self.evaluated
        self.rejected(PUBLIC, self.blinded, [second, first, *rest], self.proof)
        self.rejected(PUBLIC, self.blinded, self.evaluated[:-1], self.proof)
        self.rejected(PUBLIC, self.blinded[:-1], self.evaluated[:-1], self.proof)
        self.rejected(PUBLIC, [], [], self.proof)

    def test_scalars_that_are_equal_modulo_the_order(self) -> None:
        for at in (0, 32):
            number = int.from_bytes(self.proof[at : at + 32], "little") + group.ORDER
            longer = self.proof[:at] + number.to_bytes(32, "little") + self.proof[at + 32 :]
            self.rejected(PUBLIC, self.blinded, self.evaluated, longer)

    @given(st.integers(0, 3), st.integers(0, 511))
    @settings(max_examples=60)
    def test_any_single_bit(self, item: int, bit: int) -> None:
        def flipped(data: bytes) -> bytes:
            at = bit % (8 * len(data))
            return data[: at // 8] + bytes([data[at // 8] ^ (1 << at % 8)]) + data[at // 8 + 1 :]

        changed = [flipped(e) if i == item else e for i, e in enumerate(self.evaluated)]
        self.rejected(PUBLIC, self.blinded, changed, self.proof)
        self.rejected(PUBLIC, self.blinded, self.evaluated, flipped(self.proof))

    def test_truncated_and_empty_proofs(self) -> None:
        for proof in (b"", self.proof[:-1], self.proof + b"\0", bytes(64)):
            self.rejected(PUBLIC, self.blinded, self.evaluated, proof)


def test_proofs_are_made_by_libsodium_whatever_the_group() -> None:
    """The key must never meet the Python group, which is not constant time."""

    class Forbidden:
        def __getattr__(self, name: str) -> Any:
            raise AssertionError(f"{name} was asked of another group")

    blinded = [protocol.blind(b"x")[1]]
    with group.using(Forbidden()):
        evaluated, proof = protocol.evaluate(SECRET, PUBLIC, blinded)
    assert evaluated == [libsodium.multiply(SECRET, blinded[0])]
    protocol.verify(PUBLIC, blinded, evaluated, proof)


def test_libsodium_is_looked_for_once_where_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looking for it starts processes."""
    looked = list[int]()
    libsodium._find.cache_clear()
    try:
        monkeypatch.setattr(libsodium, "_candidates", lambda: looked.append(1) or ["no such library"])
        assert group.backend() is pure_python and group.backend() is pure_python and not libsodium.available()
        with pytest.raises(libsodium.SodiumMissing):
            libsodium.library()
        assert looked == [1]
    finally:
        monkeypatch.undo()
        libsodium._find.cache_clear()
    assert group.backend() is libsodium
