"""ristretto255 (RFC 9496) on libsodium: the system library, else the one inside the pyzmq wheel.

Elements and scalars are 32-byte strings. Every call checks lengths before it passes memory to C.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import importlib.util
from functools import cache
from pathlib import Path

ELEMENT_BYTES = SCALAR_BYTES = 32
ORDER = 2**252 + 27742317777372353535851937790883648493
IDENTITY = bytes(32)


class GroupError(ValueError):
    """Bytes that are no element or no scalar."""


class SodiumMissing(RuntimeError):
    """No libsodium with ristretto255 on this machine."""

    def __init__(self) -> None:
        super().__init__(
            "libsodium with ristretto255 not found: install the system package (Debian: libsodium23) "
            'or `pip install "pharoah[sodium]"`'
        )


@cache
def sodium() -> ctypes.CDLL:
    """The library, initialised. Raises SodiumMissing."""
    for candidate in _candidates():
        try:
            library = ctypes.CDLL(candidate)
            library.crypto_scalarmult_ristretto255.restype = ctypes.c_int
        except (OSError, AttributeError):
            continue
        if library.sodium_init() >= 0:
            return library
    raise SodiumMissing


def _candidates() -> list[str]:
    names = ["libsodium.so.26", "libsodium.so.23"]
    if found := ctypes.util.find_library("sodium"):
        names.append(found)
    if (spec := importlib.util.find_spec("zmq")) and spec.origin:
        bundled = Path(spec.origin).parent.parent / "pyzmq.libs"
        names += sorted(str(path) for path in bundled.glob("libsodium*"))
    return names


def multiply(scalar: bytes, element: bytes) -> bytes:
    """scalar * element. Raises GroupError for the identity, non-canonical elements and scalars >= the group order."""
    _check_scalar(scalar)
    check_element(element)
    out = ctypes.create_string_buffer(ELEMENT_BYTES)
    if sodium().crypto_scalarmult_ristretto255(out, scalar, element) != 0:
        raise GroupError("element: multiplication gave the identity")
    return out.raw


def multiply_base(scalar: bytes) -> bytes:
    """scalar * generator."""
    _check_scalar(scalar)
    out = ctypes.create_string_buffer(ELEMENT_BYTES)
    if sodium().crypto_scalarmult_ristretto255_base(out, scalar) != 0:
        raise GroupError("scalar: zero")
    return out.raw


def from_hash(digest: bytes) -> bytes:
    """The one-way map of 64 uniform bytes to an element."""
    if len(digest) != 64:
        raise GroupError(f"digest: {len(digest)} bytes, expected 64")
    out = ctypes.create_string_buffer(ELEMENT_BYTES)
    sodium().crypto_core_ristretto255_from_hash(out, digest)
    return out.raw


def invert(scalar: bytes) -> bytes:
    """1/scalar modulo the group order."""
    _check_scalar(scalar)
    out = ctypes.create_string_buffer(SCALAR_BYTES)
    if sodium().crypto_core_ristretto255_scalar_invert(out, scalar) != 0:
        raise GroupError("scalar: zero has no inverse")
    return out.raw


def random_scalar() -> bytes:
    out = ctypes.create_string_buffer(SCALAR_BYTES)
    sodium().crypto_core_ristretto255_scalar_random(out)
    return out.raw


def check_element(element: bytes) -> None:
    """Raises GroupError unless these bytes are the canonical form of an element other than the identity."""
    if len(element) != ELEMENT_BYTES:
        raise GroupError(f"element: {len(element)} bytes, expected {ELEMENT_BYTES}")
    if element == IDENTITY or sodium().crypto_core_ristretto255_is_valid_point(element) != 1:
        raise GroupError("element: not a canonical ristretto255 element, or the identity")


def _check_scalar(scalar: bytes) -> None:
    if len(scalar) != SCALAR_BYTES or not 0 < int.from_bytes(scalar, "little") < ORDER:
        raise GroupError("scalar: not in 1 .. order-1")
