"""Changes of torch after which a script does other work than with the reference release (`known_changes.toml`)."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evaluation.releases.plan import parsed

FILE = Path(__file__).with_name("known_changes.toml")


@dataclass(frozen=True)
class KnownChange:
    """One change."""

    scripts: tuple[str, ...]
    reason: str
    until: str = ""
    """The last minor release that differs from the reference; empty for a change after it."""
    since: str = ""
    """The first minor release that differs from the reference; empty for a change before it."""

    def covers(self, script: str, minor: str) -> bool:
        """Whether it says why a script has another archetype with this minor release."""
        number = parsed(minor)
        here = number <= parsed(self.until) if self.until else number >= parsed(self.since)
        return script in self.scripts and here

    @property
    def releases(self) -> str:
        return f"until {self.until}" if self.until else f"since {self.since}"


def read_changes(text: str, scripts: Sequence[str]) -> list[KnownChange]:
    """All changes of a file. Raises SystemExit that names the entry and the field."""
    return [_change(number, entry, scripts) for number, entry in enumerate(tomllib.loads(text).get("change", []), 1)]


def known_changes(scripts: Sequence[str]) -> list[KnownChange]:
    """The changes that this evaluation knows."""
    return read_changes(FILE.read_text(), scripts)


def _change(number: int, entry: dict[str, Any], scripts: Sequence[str]) -> KnownChange:
    where = f"{FILE.name}: change {number}"
    if unknown := entry.keys() - KnownChange.__dataclass_fields__.keys():
        raise SystemExit(f"{where}: {min(unknown)}: unknown field")
    if strange := set(entry.get("scripts", [])) - set(scripts):
        raise SystemExit(f"{where}: scripts: there is no {min(strange)}")
    if not entry.get("scripts") or not entry.get("reason") or ("until" in entry) == ("since" in entry):
        raise SystemExit(f"{where}: needs scripts, reason, and one of until and since")
    try:
        parsed(entry.get("until") or entry["since"])
    except ValueError as error:
        raise SystemExit(f"{where}: {error}") from None
    return KnownChange(**{**entry, "scripts": tuple(entry["scripts"])})
