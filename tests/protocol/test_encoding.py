from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pharoah_protocol.encoding import read_u64, u64


@given(st.integers(0, 2**64 - 1))
def test_a_number_is_read_back(value: int) -> None:
    assert read_u64(u64(value)) == value and len(u64(value)) == 8


@pytest.mark.parametrize("value", [-1, 2**64])
def test_numbers_beyond_64_bits_are_refused(value: int) -> None:
    with pytest.raises(OverflowError):
        u64(value)


@pytest.mark.parametrize("data", [b"", bytes(7), bytes(9)])
def test_other_lengths_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="expected 8"):
        read_u64(data)
