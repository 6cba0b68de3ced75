"""TOML of others. The parser is Python's own, which is slow and recurses, so that texts are short and flat."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from pharoah_system.bounded_reading._content import UnreadableInput, decode, encode, read_content
from pharoah_system.bounded_reading._values import check_values

MAX_TOML_BYTES = 256 << 10
"""A campaign file of 20,000 cells is some kilobytes."""
MAX_TOML_DEPTH = 24
MAX_TOML_VALUES = 50_000
"""Lists, tables, keys and values: `tomllib` makes 150,000 a second (2-core container, Python 3.11)."""
_STRINGS = re.compile(
    r'"""(?:[^"\\]|\\.|"(?!""))*+"""|' r"'''(?:[^']|'(?!''))*+'''|" r'"(?:[^"\\\n]|\\.)*+"|' r"'[^'\n]*+'|#[^\n]*+",
    re.DOTALL,
)
_NOT_IN_KEYS = re.compile(r"[^\w.\- \t]+")


def parse_toml(content: bytes | str, source: object) -> dict[str, Any]:
    """The table of a document. `source` names it in errors. Raises UnreadableInput."""
    import tomllib  # here: ranks import this package, and never read TOML

    text = decode(encode(content, source, MAX_TOML_BYTES), source)
    _check_structure(text, source)
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UnreadableInput(source, f"not TOML: {error}") from None
    except (ValueError, RecursionError, OverflowError):
        raise UnreadableInput(source, "not TOML that can be read: a number with too many digits, or no date") from None
    check_values(data, source, MAX_TOML_DEPTH)
    return data


def read_toml_file(path: Path) -> dict[str, Any]:
    """The table of a file. Raises UnreadableInput and OSError."""
    return parse_toml(read_content(path, MAX_TOML_BYTES), path)


def _check_structure(text: str, source: object) -> None:
    """Raise UnreadableInput for what would recurse deeply, or take time that grows faster than the text."""
    outside = _STRINGS.sub("s", text)
    depth = deepest = line = 0
    if sum(map(outside.count, "[{=,")) > MAX_TOML_VALUES:
        raise UnreadableInput(source, f"more than {MAX_TOML_VALUES:,} lists, tables, keys and values")
    for one in re.finditer(r"[\[{]|[\]}]|\n", outside):
        line += one[0] == "\n"
        depth = max(0, depth + (one[0] in "[{") - (one[0] in "]}"))
        deepest = max(deepest, depth)
        if deepest > MAX_TOML_DEPTH:
            raise UnreadableInput(source, f"nested deeper than {MAX_TOML_DEPTH} levels", f"line {line + 1}")
    # Each part of a dotted key is a table, and the parser compares each beginning of a key.
    if max((piece.count(".") for piece in _NOT_IN_KEYS.split(outside)), default=0) > MAX_TOML_DEPTH:
        raise UnreadableInput(source, f"a key with more than {MAX_TOML_DEPTH} dots")
