"""Text from other parties, made safe to print and store: one line, printable, of a bounded length."""

from __future__ import annotations


def sanitize_text(text: str, longest: int = 300) -> str:
    """At most `longest` characters; terminal codes, line ends and lone surrogates become `?`."""
    cut = text if len(text) <= longest else text[: longest - 1] + "…"
    return "".join(letter if letter.isprintable() else "?" for letter in cut)


def shown_value(value: object) -> str:
    """A wrong value in a message: a container by its type, anything else by its beginning."""
    return f"a {type(value).__name__}" if isinstance(value, (dict, list)) else sanitize_text(repr(value), 40)
