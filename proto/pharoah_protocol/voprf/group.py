"""ristretto255 (RFC 9496): elements and scalars as 32-byte strings, on libsodium or in plain Python.

libsodium is constant time and fast; it must be used with every secret key. The Python group serves tenants whose
machine has no libsodium: it multiplies by blinds only, which live for one query.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from typing import Protocol

from pharoah_protocol.voprf import libsodium, pure_python
from pharoah_protocol.voprf.pure_python import ORDER

ELEMENT_BYTES = SCALAR_BYTES = 32


class GroupError(ValueError):
    """Bytes that are not an element, or not a scalar."""


class Backend(Protocol):
    """The interface of an implementation. Inputs have the right lengths. None stands for an element that is not
    canonical, or for a result that is the identity."""

    def multiply(self, scalar: bytes, element: bytes, /) -> bytes | None: ...
    def multiply_base(self, scalar: bytes, /) -> bytes | None: ...
    def compute_weighted_sum(self, scalars: Sequence[bytes], elements: Sequence[bytes], /) -> bytes | None:
        """The sum of scalar * element. Not constant time: for public values only."""
        ...

    def from_hash(self, digest: bytes, /) -> bytes: ...
    def is_element(self, element: bytes, /) -> bool: ...


_chosen: ContextVar[Backend | None] = ContextVar("backend", default=None)


def backend() -> Backend:
    """The implementation in use: libsodium where it is found, else Python."""
    if (chosen := _chosen.get()) is not None:
        return chosen
    return libsodium if libsodium.available() else pure_python


@contextlib.contextmanager
def using(chosen: Backend) -> Iterator[None]:
    """Calculate with this implementation inside the block."""
    token = _chosen.set(chosen)
    try:
        yield
    finally:
        _chosen.reset(token)


def multiply(scalar: bytes, element: bytes) -> bytes:
    """scalar * element. Raises GroupError for the identity, non-canonical elements and scalars >= the group order."""
    check_scalar(scalar)
    check_encoding(element)
    if (product := backend().multiply(scalar, element)) is None:
        raise GroupError("element: not a canonical ristretto255 element, or the identity")
    return product


def multiply_base(scalar: bytes) -> bytes:
    """scalar * generator. Raises GroupError for zero and for scalars >= the group order."""
    check_scalar(scalar)
    if (product := backend().multiply_base(scalar)) is None:
        raise GroupError("scalar: zero")
    return product


def compute_weighted_sum(scalars: Sequence[bytes], elements: Sequence[bytes]) -> bytes:
    """Sum of scalar * element over public values; zero is a scalar here. Raises GroupError as `multiply` does."""
    for scalar, element in zip(scalars, elements, strict=True):
        check_scalar(scalar, zero=True)
        check_encoding(element)
    if (total := backend().compute_weighted_sum(scalars, elements)) is None:
        raise GroupError("elements: one is not canonical, or they add up to the identity")
    return total


def from_hash(digest: bytes) -> bytes:
    """The one-way map of 64 uniform bytes to an element."""
    if len(digest) != 64:
        raise GroupError(f"digest: {len(digest)} bytes, expected 64")
    return backend().from_hash(digest)


def check_scalar(scalar: bytes, *, zero: bool = False) -> None:
    """Raises GroupError unless these bytes are a canonical scalar; otherwise s + order would pass as s."""
    if len(scalar) != SCALAR_BYTES or not (0 if zero else 1) <= int.from_bytes(scalar, "little") < ORDER:
        raise GroupError("scalar: not in 1 .. order-1")


def reduce(digest: bytes) -> bytes:
    """64 uniform bytes, little-endian, modulo the group order."""
    return _scalar(int.from_bytes(digest, "little"))


def invert(scalar: bytes) -> bytes:
    """1/scalar modulo the group order."""
    check_scalar(scalar)
    return _scalar(pow(int.from_bytes(scalar, "little"), -1, ORDER))


def random_scalar() -> bytes:
    """Uniform in 1 .. order-1."""
    return _scalar(1 + secrets.randbelow(ORDER - 1))


def _scalar(value: int) -> bytes:
    return (value % ORDER).to_bytes(SCALAR_BYTES, "little")


def check_encoding(element: bytes) -> None:
    """Raises GroupError for the wrong length, and for a set top bit, which libsodium 1.0.18 takes for canonical."""
    if len(element) != ELEMENT_BYTES:
        raise GroupError(f"element: {len(element)} bytes, expected {ELEMENT_BYTES}")
    if element[31] & 0x80:
        raise GroupError("element: not a canonical ristretto255 element, or the identity")
