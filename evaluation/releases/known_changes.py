"""What is known of releases of torch (`known_changes.toml`): changes after which a script does other work than with the
reference release, and defects that end a process of several ranks badly when all its work is done."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from evaluation.releases.plan import parsed

FILE = Path(__file__).with_name("known_changes.toml")


@dataclass(frozen=True, kw_only=True)
class _Releases:
    """The minor releases of which something is known."""

    reason: str
    until: str = ""
    """The last of them; empty where there is a first one."""
    since: str = ""
    """The first of them; empty where there is a last one."""

    def has(self, minor: str) -> bool:
        """Whether a minor release is one of them."""
        number = parsed(minor)
        return number <= parsed(self.until) if self.until else number >= parsed(self.since)

    @property
    def releases(self) -> str:
        return f"until {self.until}" if self.until else f"since {self.since}"


@dataclass(frozen=True, kw_only=True)
class KnownChange(_Releases):
    """One change, with the releases that differ from the reference."""

    scripts: tuple[str, ...]

    def covers(self, script: str, minor: str) -> bool:
        """Whether it says why a script has another archetype with this minor release."""
        return script in self.scripts and self.has(minor)


class BadEnd(StrEnum):
    """How a process ends that has done all its work."""

    HANGS = "hangs"
    ABORTS = "aborts"


@dataclass(frozen=True, kw_only=True)
class KnownEnd(_Releases):
    """One defect of torch by which a script of several ranks ends badly, now and then, with and without Pharoah."""

    end: BadEnd


def read_changes(text: str, scripts: Sequence[str]) -> list[KnownChange]:
    """All changes of a file. Raises SystemExit that names the entry and the field."""
    return [_change(where, entry, scripts) for where, entry in _entries(text, "change", KnownChange)]


def read_ends(text: str) -> list[KnownEnd]:
    """All defects of a file. Raises SystemExit that names the entry and the field."""
    return [_end(where, entry) for where, entry in _entries(text, "end", KnownEnd)]


def known_changes(scripts: Sequence[str]) -> list[KnownChange]:
    """The changes that this evaluation knows."""
    return read_changes(FILE.read_text(), scripts)


def read_known_ends() -> list[KnownEnd]:
    """The defects that this evaluation knows."""
    return read_ends(FILE.read_text())


def _change(where: str, entry: dict[str, Any], scripts: Sequence[str]) -> KnownChange:
    if strange := set(entry.get("scripts", [])) - set(scripts):
        raise SystemExit(f"{where}: scripts: there is no {min(strange)}")
    if not entry.get("scripts"):
        raise SystemExit(f"{where}: needs scripts")
    return KnownChange(**{**entry, "scripts": tuple(entry["scripts"])})


def _end(where: str, entry: dict[str, Any]) -> KnownEnd:
    if entry.get("end") not in list(BadEnd):
        raise SystemExit(f"{where}: end: needs one of {', '.join(BadEnd)}")
    return KnownEnd(**{**entry, "end": BadEnd(entry["end"])})


def _entries(text: str, table: str, kind: type[_Releases]) -> Iterator[tuple[str, dict[str, Any]]]:
    for number, entry in enumerate(tomllib.loads(text).get(table, []), 1):
        where = f"{FILE.name}: {table} {number}"
        if unknown := entry.keys() - kind.__dataclass_fields__.keys():
            raise SystemExit(f"{where}: {min(unknown)}: unknown field")
        if not entry.get("reason") or ("until" in entry) == ("since" in entry):
            raise SystemExit(f"{where}: needs reason, and one of until and since")
        try:
            parsed(entry.get("until") or entry["since"])
        except ValueError as error:
            raise SystemExit(f"{where}: {error}") from None
        yield where, entry
