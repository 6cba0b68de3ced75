"""Numbers in canonical bytes: 8 bytes, most significant first. Lists of parts: `pharoah_archetypes.ladder`."""

from __future__ import annotations

_U64_BYTES = 8


def u64(value: int) -> bytes:
    """Raises OverflowError for a number that is negative or needs more than 64 bits."""
    return value.to_bytes(_U64_BYTES, "big")


def read_u64(data: bytes) -> int:
    """Raises ValueError unless `data` has 8 bytes."""
    if len(data) != _U64_BYTES:
        raise ValueError(f"a number of {len(data)} bytes, expected {_U64_BYTES}")
    return int.from_bytes(data, "big")
