"""The one way to read what others have written: files that people hand to each other, and messages of other parties.

A reader bounds what an input may cost before it is built: bytes, depth, digits, memory, and how much a packed input may
grow. It raises `UnreadableInput`, which names the input, the place in it and what to do, and nothing else: no input
ends in a RecursionError, a MemoryError or a number that nobody can convert. What this process or its own children have
written needs no reader; `tests/architecture/test_reading.py` lists those places.

Ranks import this: standard library only, and what is slow to import is imported where it is used.
"""

from pharoah_system.bounded_reading._archives import BoundedStream, ZipReader, members_of_tar, unpack
from pharoah_system.bounded_reading._content import (
    MAX_FILE_BYTES,
    MAX_TABLE_BYTES,
    UnreadableInput,
    open_regular,
    read_content,
    read_text,
)
from pharoah_system.bounded_reading._json import MESSAGE_LIMITS, JsonLimits, check_json, parse_json, read_json_file
from pharoah_system.bounded_reading._patterns import MAX_SEARCHED, BoundedPattern
from pharoah_system.bounded_reading._toml import parse_toml, read_toml_file
from pharoah_system.bounded_reading._yaml import parse_yaml

__all__ = [
    "MAX_FILE_BYTES",
    "MAX_SEARCHED",
    "MAX_TABLE_BYTES",
    "MESSAGE_LIMITS",
    "BoundedPattern",
    "BoundedStream",
    "JsonLimits",
    "UnreadableInput",
    "ZipReader",
    "check_json",
    "members_of_tar",
    "open_regular",
    "parse_json",
    "parse_toml",
    "parse_yaml",
    "read_content",
    "read_json_file",
    "read_text",
    "read_toml_file",
    "unpack",
]
