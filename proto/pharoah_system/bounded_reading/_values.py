"""What a parsed document may hold, for formats whose parsers have no hooks for it."""

from __future__ import annotations

from math import isfinite
from typing import Any, NamedTuple

from pharoah_system.bounded_reading._content import UnreadableInput

MAX_BITS = 64
"""The size of a whole number: TOML has no larger ones (TOML 1.0, Integer), and nothing of ours needs one."""


class _Value(NamedTuple):
    value: Any
    depth: int
    key: str
    """The key that it stands under, for messages."""


def check_values(data: Any, source: object, max_depth: int) -> None:
    """Raise UnreadableInput for values that are too deep, and for numbers that are too large or not finite."""
    ahead = [_Value(data, 0, "")]
    while ahead:
        value, depth, key = ahead.pop()
        if isinstance(value, dict):
            ahead += (_Value(one, depth + 1, str(name)) for name, one in value.items())
        elif isinstance(value, (list, tuple, set)):
            ahead += (_Value(one, depth + 1, key) for one in value)
        elif isinstance(value, int) and value.bit_length() > MAX_BITS:
            raise UnreadableInput(source, f"a whole number of more than {MAX_BITS} bits", key)
        elif isinstance(value, float) and not isfinite(value):
            raise UnreadableInput(source, f"{value} is no number that can be used", key)
        elif isinstance(value, str) and not value.isascii():
            try:
                value.encode()
            except UnicodeEncodeError:
                raise UnreadableInput(source, "a text holds half of a character (a lone surrogate)", key) from None
        if depth > max_depth:
            raise UnreadableInput(source, f"nested deeper than {max_depth} levels", key)
