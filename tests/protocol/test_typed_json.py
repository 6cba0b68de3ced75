"""Frozen dataclasses from JSON: numbers that no field can hold."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from pharoah_protocol.typed_json import FieldError, read_object


@dataclass(frozen=True)
class Measured:
    seconds: float


def test_an_integer_is_read_as_a_float_unless_it_is_too_large_for_one() -> None:
    assert read_object(Measured, {"seconds": 3}) == Measured(3.0)
    with pytest.raises(FieldError, match=r"Measured\.seconds: 1000.* is too large"):
        read_object(Measured, {"seconds": 10**400})
