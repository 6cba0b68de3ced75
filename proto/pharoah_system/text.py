"""Text from other parties, made safe to print and store.

Terminal codes (C0, C1), bidirectional codes, line separators and lone surrogates let who wrote a text change what a
terminal shows or does, or add lines to a log. `str.isprintable` is false for all of them, also for those of a later
Unicode than this Python's. Nothing prints or logs text in another way than through here: `standard_streams` and
`log_lines` do it, and a test in `tests/architecture` refuses every other way.
"""

from __future__ import annotations


def sanitize_text(text: str, longest: int = 300) -> str:
    """One line of at most `longest` characters; what is not printable becomes `?`."""
    return _printable(text if len(text) <= longest else text[: longest - 1] + "…")


def printable_lines(text: str) -> str:
    """Text of any length: line ends and tabs stay, and what else is not printable becomes `?`."""
    return "\n".join("\t".join(map(_printable, line.split("\t"))) for line in text.split("\n"))


def one_line(text: str) -> str:
    """Text of any length as one line; tabs become spaces."""
    return _printable(text.replace("\t", " "))


def render_value(value: object) -> str:
    """A wrong value in a message: a container by its type, anything else by its beginning."""
    return f"a {type(value).__name__}" if isinstance(value, (dict, list)) else sanitize_text(repr(value), 40)


def _printable(text: str) -> str:
    return text if text.isprintable() else "".join(letter if letter.isprintable() else "?" for letter in text)
