"""ristretto255 on libsodium: the system library, else the one inside the pyzmq wheel.

A backend of `pharoah_protocol.voprf.group`, which has checked all lengths before memory is passed to C. libsodium
itself refuses elements that are not canonical, and products that are the identity.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import importlib.util
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

_SCALARMULT = "crypto_scalarmult_ristretto255"
_CORE = "crypto_core_ristretto255"


class SodiumMissing(RuntimeError):
    """No libsodium with ristretto255 on this machine."""

    def __init__(self) -> None:
        super().__init__(
            "libsodium with ristretto255 not found: install the system package (Debian: libsodium23) "
            'or `pip install "pharoah[sodium]"`'
        )


def library() -> ctypes.CDLL:
    """The library, initialised. Raises SodiumMissing."""
    if (found := _find()) is None:
        raise SodiumMissing
    return found


def available() -> bool:
    """Whether this machine has libsodium with ristretto255."""
    return _find() is not None


@cache
def _find() -> ctypes.CDLL | None:
    """The library, initialised; None where there is none. It is looked for once: that starts other processes."""
    for candidate in _candidates():
        try:
            found = ctypes.CDLL(candidate)
            for name in (_SCALARMULT, f"{_SCALARMULT}_base", f"{_CORE}_add", f"{_CORE}_from_hash"):
                getattr(found, name).argtypes = [ctypes.c_char_p] * (2 if name.endswith(("base", "hash")) else 3)
            for name in (f"{_CORE}_scalar_mul", f"{_CORE}_scalar_sub"):
                getattr(found, name).argtypes = [ctypes.c_char_p] * 3
            found.crypto_core_ristretto255_is_valid_point.argtypes = [ctypes.c_char_p]
        except (OSError, AttributeError):
            continue
        if found.sodium_init() >= 0:
            return found
    return None


def multiply(scalar: bytes, element: bytes) -> bytes | None:
    """scalar * element; None for an element that is not canonical, and for the identity."""
    out = ctypes.create_string_buffer(32)
    return out.raw if library().crypto_scalarmult_ristretto255(out, scalar, element) == 0 else None


def multiply_all(scalars: Sequence[bytes], elements: Sequence[bytes]) -> list[bytes | None]:
    """Products, item by item, on all cores: ctypes releases the interpreter lock while libsodium works."""
    share = -(-len(scalars) // _cores()) or 1
    parts = [slice(at, at + share) for at in range(0, len(scalars), share)]
    done = _pool().map(lambda part: list(map(multiply, scalars[part], elements[part])), parts)  # type: ignore[arg-type]
    return [product for part in done for product in part]


def multiply_base(scalar: bytes) -> bytes | None:
    """scalar * generator; None for zero."""
    out = ctypes.create_string_buffer(32)
    return out.raw if library().crypto_scalarmult_ristretto255_base(out, scalar) == 0 else None


def compute_weighted_sum(scalars: Sequence[bytes], elements: Sequence[bytes]) -> bytes | None:
    """The sum of scalar * element, on one core: the other cores of a tenant train."""
    return _sum(scalars, list(map(multiply, scalars, elements)), elements)


def compute_weighted_sum_on_all_cores(scalars: Sequence[bytes], elements: Sequence[bytes]) -> bytes | None:
    """The sum of scalar * element, for the provider."""
    return _sum(scalars, multiply_all(scalars, elements), elements)


def product(left: bytes, right: bytes) -> bytes:
    """left * right of two scalars, in constant time, because one of them may be a key."""
    return _scalars("mul", left, right)


def difference(left: bytes, right: bytes) -> bytes:
    """left - right of two scalars, in constant time."""
    return _scalars("sub", left, right)


def from_hash(digest: bytes) -> bytes:
    """The one-way map of 64 uniform bytes to an element."""
    out = ctypes.create_string_buffer(32)
    library().crypto_core_ristretto255_from_hash(out, digest)
    return out.raw


def is_element(element: bytes) -> bool:
    """Whether these 32 bytes are a canonical element other than the identity."""
    return any(element) and not element[31] & 0x80 and library().crypto_core_ristretto255_is_valid_point(element) == 1


def _scalars(name: str, left: bytes, right: bytes) -> bytes:
    out = ctypes.create_string_buffer(32)
    getattr(library(), f"{_CORE}_scalar_{name}")(out, left, right)
    return out.raw


def _sum(scalars: Sequence[bytes], products: Sequence[bytes | None], elements: Sequence[bytes]) -> bytes | None:
    total, add = bytes(32), library().crypto_core_ristretto255_add
    for scalar, product, element in zip(scalars, products, elements, strict=True):
        if product is None:
            if any(scalar) or not is_element(element):
                return None
            continue  # zero times an element
        out = ctypes.create_string_buffer(32)
        add(out, total, product)
        total = out.raw
    return total if any(total) else None


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_cores(), thread_name_prefix="pharoah-group")


def _cores() -> int:
    return len(os.sched_getaffinity(0))


def _candidates() -> list[str]:
    names = ["libsodium.so.26", "libsodium.so.23"]
    if found := ctypes.util.find_library("sodium"):
        names.append(found)
    if (spec := importlib.util.find_spec("zmq")) and spec.origin:
        bundled = Path(spec.origin).parent.parent / "pyzmq.libs"
        names += sorted(str(path) for path in bundled.glob("libsodium*"))
    return names
