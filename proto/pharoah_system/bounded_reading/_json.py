"""JSON of others. Depth and memory are bounded before the parser begins, in time that grows with the length only."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from math import isinf
from pathlib import Path
from typing import Any, NoReturn

from pharoah_system.bounded_reading._content import (
    MAX_FILE_BYTES,
    UnreadableInput,
    decode,
    encode,
    read_content,
    width_of,
)

MAX_DIGITS = 300
"""The length of one number: a larger whole number is none that a float can hold (308 digits)."""


@dataclass(frozen=True)
class JsonLimits:
    """What one document may cost."""

    max_bytes: int = MAX_FILE_BYTES
    max_depth: int = 48
    """Lists and objects in each other: ours have ten levels, and what reads them afterwards recurses as well."""
    max_memory_bytes: int = 56 << 20
    """What the text and its values take, by an upper estimate."""
    reads_nan: bool = False
    """Whether NaN and infinite numbers are read, as Python writes them."""
    growth: int = 0
    """For files that may be large: their values may also take so many times their bytes."""

    def memory_of(self, size: int) -> int:
        """What a text of so many bytes may take."""
        return max(self.max_memory_bytes, self.growth * size)


FILE_LIMITS = JsonLimits()
MESSAGE_LIMITS = JsonLimits(max_bytes=1 << 20)
"""A message between processes of one machine (`local_messages.MAX_MESSAGE_BYTES`)."""
_LIST_BYTES, _OBJECT_BYTES, _PAIR_BYTES, _VALUE_BYTES = 88, 64, 120, 64
"""Memory of a list with its first value, of an empty object, of a key and its place in an object, and of a further
value: `sys.getsizeof` of CPython 3.11 to 3.13, rounded up."""
_FEW_BYTES = 1 << 16
"""A text of this size costs at most some megabytes, whatever it holds."""
_CHUNK_BYTES = 1 << 18
_OPEN, _CLOSE, _LIST, _OBJECT, _LINE_END = b"[{", b"]}", b"[", b"{", b"\n"
_ONE_KIND = bytes.maketrans(_OBJECT + b"}", b"[]")
_NOT_BRACKETS = bytes(sorted(set(range(256)) - set(_OPEN + _CLOSE)))
_TOKENS = re.compile(rb'"(?:[^"\\]|\\.)*+"|[\[{]|[\]}]', re.DOTALL)
_MAX_PLACE_BYTES = 1 << 18
"""How far the place of a fault is looked for: what is deep has its depth at the beginning, or is long and regular."""


def parse_json(content: bytes | str, source: object, limits: JsonLimits = FILE_LIMITS) -> Any:
    """The value of a document. `source` names it in errors. Raises UnreadableInput.

    NaN, infinite numbers and lone surrogates are refused: JSON has none of them (RFC 8259), and nothing that reads the
    value afterwards expects them.
    """
    raw = encode(content, source, limits.max_bytes)
    check_json(raw, source, limits)
    text = decode(raw, source)
    try:
        value = (_NAN_DECODER if limits.reads_nan else _DECODER).decode(text)
    except json.JSONDecodeError as error:
        raise UnreadableInput(source, f"not JSON: {error.msg}", f"line {error.lineno}, column {error.colno}") from None
    except (ValueError, RecursionError) as error:
        raise UnreadableInput(source, f"not JSON that can be read: {error}") from None
    if b"\\u" in raw and (b"\\ud" in raw or b"\\uD" in raw):
        _check_surrogates(value, source)
    return value


def read_json_file(path: Path, limits: JsonLimits = FILE_LIMITS) -> Any:
    """The value of a file. Raises UnreadableInput and OSError."""
    return parse_json(read_content(path, limits.max_bytes), path, limits)


def check_json(raw: bytes, source: object, limits: JsonLimits = FILE_LIMITS) -> None:
    """Raise UnreadableInput for a document that is too deep, or whose values take too much memory."""
    if len(raw) <= _FEW_BYTES and raw.count(_LIST) + raw.count(_OBJECT) <= limits.max_depth:
        return
    brackets, inside = bytearray(), len(raw)
    width = width_of(raw)
    memory, most = len(raw) * (1 + width), limits.memory_of(len(raw))
    for outside in _outside_of_strings(raw):
        inside -= len(outside)
        memory += _LIST_BYTES * outside.count(_LIST) + _OBJECT_BYTES * outside.count(_OBJECT)
        memory += _PAIR_BYTES * outside.count(b":") + _VALUE_BYTES * outside.count(b",")
        if memory > most:
            break
        brackets += outside.translate(_ONE_KIND, _NOT_BRACKETS)
    if memory + width * max(inside, 0) > most:
        raise UnreadableInput(source, f"its values would take more than {most >> 20} MiB of memory")
    if _is_deeper(bytes(brackets), limits.max_depth):
        place = _line_of_depth(raw, limits.max_depth)
        raise UnreadableInput(source, f"nested deeper than {limits.max_depth} levels: nothing of this kind is", place)


def _outside_of_strings(raw: bytes) -> Iterator[bytes]:
    """What is not part of a string, piece by piece. For a text that is no JSON, up to where it stops being JSON."""
    if b"\\" in raw:
        raw = raw.replace(b"\\\\", b"").replace(b'\\"', b"")
    within = 0
    for start in range(0, len(raw), _CHUNK_BYTES):
        pieces = raw[start : start + _CHUNK_BYTES].split(b'"')
        yield b"".join(pieces[within::2])
        within = (within + len(pieces) - 1) % 2


def _is_deeper(brackets: bytes, depth: int) -> bool:
    """Whether brackets are nested deeper: each pass takes the innermost pairs away."""
    for _ in range(depth):
        if (rest := brackets.replace(b"[]", b"")) == brackets:
            break
        brackets = rest
    return b"[]" in brackets or brackets.count(b"[") > depth


def _line_of_depth(raw: bytes, depth: int) -> str:
    """Where a text becomes too deep, as far as that is near its beginning."""
    at = 0
    for found in _TOKENS.finditer(raw[:_MAX_PLACE_BYTES]):
        at += (found[0] in _OPEN) - (found[0] in _CLOSE)
        if at > depth:
            return f"line {raw.count(_LINE_END, 0, found.end()) + 1}, byte {found.end():,}"
    return ""


def _check_surrogates(value: Any, source: object) -> None:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise UnreadableInput(source, "a text holds half of a character (a lone surrogate)") from None


def _whole(text: str) -> int:
    if len(text) > MAX_DIGITS:
        raise ValueError(f"{text[:20]}… has {len(text):,} digits, at most {MAX_DIGITS} are read")
    return int(text)


def _decimal(text: str) -> float:
    if len(text) > MAX_DIGITS or isinf(number := float(text)):
        raise ValueError(f"{text[:20]}… is too long or too large for a number")
    return number


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")


_DECODER = json.JSONDecoder(parse_int=_whole, parse_float=_decimal, parse_constant=_refuse)
_NAN_DECODER = json.JSONDecoder(parse_int=_whole, parse_float=_decimal)
