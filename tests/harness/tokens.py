"""Tokens of the callers of a test, listed as a provider keeps them and written as each caller keeps its own."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from pharoah_system.files import write_atomically


def token_of(line: str) -> str:
    """The token in a line `role name token`."""
    return line.split()[2]


def listed(line: str) -> str:
    """A line `role name token` as the list has it: with the hash in place of the token."""
    role, name, token = line.split()
    return f"{role} {name} sha256:{hashlib.sha256(token.encode()).hexdigest()}"


def write_list(file: Path, lines: Iterable[str]) -> None:
    """Write a list of tokens from lines `role name token`."""
    write_atomically(file, "".join(f"{listed(line)}\n" for line in lines))


def write_token(file: Path, line: str) -> Path:
    """Write a caller's own file from a line `role name token`."""
    write_atomically(file, f"{token_of(line)}\n")
    return file
