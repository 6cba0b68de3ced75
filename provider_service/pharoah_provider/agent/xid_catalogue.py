"""What the error numbers of NVIDIA's driver mean (Xid): data in `xid_catalogue.toml`, and a site's own file over it.

A site may know better: a number that its own software causes, or a number of a newer driver. Its file has the same
form. An entry for a number that the catalogue has may name only what differs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

from pharoah_protocol.vocabulary import Resource
from pharoah_system.bounded_reading import UnreadableInput, parse_toml, read_text

MAX_CODE = 10_000
MAX_TEXT_LENGTH = 300
MAX_BYTES = 1_000_000
"""A file of overrides is no larger; the catalogue has a fiftieth of it."""
_TEXTS = ("meaning", "advice")
E = TypeVar("E", bound=StrEnum)


class XidCause(StrEnum):
    """What usually causes an error."""

    HARDWARE = "hardware"
    APPLICATION = "application"
    """The program that ran on the GPU."""
    SOFTWARE = "software"
    """The driver, its firmware, or what manages the GPU."""
    UNKNOWN = "unknown"
    """The number is not in the catalogue, or only reports another error."""


class XidBucket(StrEnum):
    """What NVIDIA's catalogue says to do at once; the values are its names of the buckets.

    Its workflows of several steps are one bucket here, and the advice of the entry says how they begin.
    """

    IGNORE = "IGNORE"
    RESTART_APP = "RESTART_APP"
    RESET_GPU = "RESET_GPU"
    RESTART_VM = "RESTART_VM"
    RESTART_BM = "RESTART_BM"
    """Restart the machine itself."""
    CHECK_MECHANICALS = "CHECK_MECHANICALS"
    UPDATE_SWFW = "UPDATE_SWFW"
    WORKFLOW = "WORKFLOW"
    CONTACT_SUPPORT = "CONTACT_SUPPORT"


@dataclass(frozen=True, kw_only=True)
class Xid:
    """One number of the catalogue."""

    code: int
    meaning: str
    resource: Resource
    cause: XidCause
    bucket: XidBucket
    advice: str
    """What an operator does first."""

    @property
    def hardware_trouble(self) -> bool:
        """Whether the GPU itself is in trouble: what is to be ignored is none."""
        return self.cause is XidCause.HARDWARE and self.bucket is not XidBucket.IGNORE


class XidError(ValueError):
    """A file of Xid entries that cannot be used; the text names file, entry, field and what is expected."""


@dataclass(frozen=True)
class XidCatalogue:
    """All known numbers."""

    entries: Mapping[int, Xid]

    def find(self, code: int) -> Xid:
        """The entry of a number; one with an unknown cause for a number that is not in the catalogue."""
        return self.entries.get(code) or Xid(
            code=code,
            meaning="not in the catalogue",
            resource=Resource.COMPUTE,
            cause=XidCause.UNKNOWN,
            bucket=XidBucket.CONTACT_SUPPORT,
            advice="Look the number up in NVIDIA's documentation of Xid errors.",
        )

    def overridden(self, path: Path) -> XidCatalogue:
        """The catalogue with the entries of a site's file. Raises XidError."""
        try:
            text = read_text(path, MAX_BYTES)
        except OSError as error:
            raise XidError(f"{path}: {error.strerror}") from None
        except UnreadableInput as error:
            raise XidError(str(error)) from None
        return XidCatalogue({**self.entries, **_entries(text, str(path), self.entries)})


def xid_catalogue() -> XidCatalogue:
    """The catalogue of this release."""
    text = resources.files("pharoah_provider.agent").joinpath("xid_catalogue.toml").read_text(encoding="utf-8")
    return XidCatalogue(_entries(text, "xid_catalogue.toml", {}))


def _entries(text: str, source: str, known: Mapping[int, Xid]) -> dict[int, Xid]:
    try:
        data = parse_toml(text, source)
    except UnreadableInput as error:
        raise XidError(str(error)) from None
    if data.keys() != {"xid"} or not isinstance(data["xid"], list):
        raise XidError(f"{source}: expected entries that begin with [[xid]], and nothing else")
    found: dict[int, Xid] = {}
    for number, entry in enumerate(data["xid"], 1):
        where = f"{source}: entry {number}"
        if not isinstance(entry, dict):
            raise XidError(f"{where}: expected a table that begins with [[xid]]")
        xid = _xid(entry, where, known)
        if xid.code in found:
            raise XidError(f"{where}: code: {xid.code} has an entry already")
        found[xid.code] = xid
    return found


def _xid(entry: dict[str, Any], where: str, known: Mapping[int, Xid]) -> Xid:
    code = entry.get("code")
    if not isinstance(code, int) or isinstance(code, bool) or not 0 < code <= MAX_CODE:
        raise XidError(f"{where}: code: expected a whole number from 1 to {MAX_CODE}, not {code!r:.40}")
    where = f"{where} (code {code})"
    fields = set(Xid.__dataclass_fields__)
    if unknown := sorted(entry.keys() - fields):
        raise XidError(f"{where}: {', '.join(unknown)}: no such field; expected {', '.join(sorted(fields))}")
    before = {} if code not in known else {field: getattr(known[code], field) for field in fields}
    given = {**before, **entry}
    if missing := sorted(fields - given.keys()):
        raise XidError(f"{where}: {', '.join(missing)}: missing, and the catalogue has no entry to take it from")
    for field in _TEXTS:
        if not isinstance(given[field], str) or not 0 < len(given[field]) <= MAX_TEXT_LENGTH:
            raise XidError(f"{where}: {field}: expected a text of 1 to {MAX_TEXT_LENGTH} characters")
    return Xid(
        code=code,
        meaning=given["meaning"],
        resource=_member(Resource, given["resource"], f"{where}: resource"),
        cause=_member(XidCause, given["cause"], f"{where}: cause"),
        bucket=_member(XidBucket, given["bucket"], f"{where}: bucket"),
        advice=given["advice"],
    )


def _member(kind: type[E], value: object, where: str) -> E:
    try:
        return kind(str(value))
    except ValueError:
        raise XidError(f"{where}: {value!r:.40} is not one of: {', '.join(kind)}") from None
