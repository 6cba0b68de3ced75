"""Faults that the driver of NVIDIA GPUs writes into the kernel's log, by the public catalogue of their codes."""

from __future__ import annotations

import re
import time
import tomllib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from pharoah_protocol.vocabulary import Resource
from pharoah_provider.agent.signals._signal import Reading

CATALOGUE = Path(__file__).with_name("_faults.toml")
RECENT_SECONDS = 600.0
"""For so long after a fault of the hardware its GPU counts as in trouble."""
_LINE = re.compile(r"NVRM: Xid \((?:PCI:)?(?P<bus>[0-9a-fA-F:.]+)[^)]*\): (?P<code>\d+)")
"""The beginning is fixed since 2010; what follows depends on the code."""


class Bucket(StrEnum):
    """What is usually at fault."""

    HARDWARE = "hardware"
    APPLICATION = "application"
    DRIVER = "driver"
    CONSEQUENCE = "consequence"
    """Something else has failed before."""


class FaultCode(NamedTuple):
    """One code of the catalogue."""

    bucket: Bucket
    resource: Resource
    meaning: str


class DriverFault(NamedTuple):
    """One fault in the log."""

    bus: str
    """The PCI address of the GPU, as the log has it."""
    code: int


def parse(line: str) -> DriverFault | None:
    """The fault in a line of the kernel's log; None for another line."""
    found = _LINE.search(line)
    return DriverFault(found["bus"].rstrip(":.").lower(), int(found["code"])) if found else None


def read_catalogue(path: Path, known: dict[int, FaultCode] | None = None) -> dict[int, FaultCode]:
    """A catalogue, on top of what is known. Raises ValueError that names the file, the code and the field."""
    try:
        entries = tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ValueError(f"{path}: {error}") from None
    found = dict(known or {})
    for code, entry in entries.items():
        if not code.isdecimal() or not isinstance(entry, dict):
            raise ValueError(f"{path}: [{code}] is not the number of a code")
        found[int(code)] = _entry(f"{path}: [{code}]", {**_fields(found.get(int(code))), **entry})
    return found


def _fields(known: FaultCode | None) -> dict[str, Any]:
    return {} if known is None else dict(known._asdict())


def _entry(where: str, entry: dict[str, Any]) -> FaultCode:
    if unknown := entry.keys() - set(FaultCode._fields):
        raise ValueError(f"{where} {min(unknown)}: there is no such field; known are {', '.join(FaultCode._fields)}")
    if missing := set(FaultCode._fields) - entry.keys():
        raise ValueError(f"{where} {min(missing)}: the field is missing")
    try:
        return FaultCode(Bucket(entry["bucket"]), Resource(entry["resource"]), str(entry["meaning"]))
    except ValueError as error:
        raise ValueError(f"{where} {error}") from None


@cache
def own_catalogue() -> dict[int, FaultCode]:
    """The catalogue that comes with Pharoah."""
    return read_catalogue(CATALOGUE)


@dataclass
class DriverFaults:
    """The faults of the last minutes, by GPU."""

    lines: Callable[[], Iterable[str]]
    name_of: Callable[[str], str] = lambda bus: bus
    """The device with a PCI address."""
    catalogue: dict[int, FaultCode] = field(default_factory=own_catalogue)
    clock: Callable[[], float] = time.monotonic
    _seen: dict[str, float] = field(default_factory=dict, init=False)
    """Device to the time of its last fault of the hardware."""

    def read(self) -> Iterator[Reading]:
        """1 for each GPU that has had a fault of its hardware lately, and 0 for one that had one before."""
        now = self.clock()
        for line in self.lines():
            fault = parse(line)
            known = self.catalogue.get(fault.code) if fault else None
            if fault and known and known.bucket is Bucket.HARDWARE:
                self._seen[self.name_of(fault.bus)] = now
        for device, at in self._seen.items():
            yield Reading(float(now - at < RECENT_SECONDS), device)
