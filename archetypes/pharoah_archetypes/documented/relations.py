"""Documented relations: for each release of one fact, which values of another fact it works with.

One data file holds one relation. A statement is about one release, or with fewer numbers about all releases that begin
so. `allows` are the values for which the document says that they work, `unclear` those about which it says nothing
certain; with all other values the release does not work.
"""

from __future__ import annotations

import datetime
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any, TypeVar

from pharoah_archetypes.documented.device_code import DeviceCode, read_capability, read_device_code
from pharoah_archetypes.documented.releases import Release, Releases, read_release, read_releases


class Inference(StrEnum):
    """What may be concluded about a release that no statement names, from the releases before and after it.

    Only what never comes back may be concluded. A release without a neighbour on one of its sides gets no answer from
    the other one.
    """

    THRESHOLD = "threshold"
    """What the relation asks for never falls from one release to the next: an answer that both neighbours give holds
    between them."""
    WINDOW = "window"
    """Each release has a window without gaps, and neither end of it ever falls, such as versions of Python. What both
    neighbours allow is allowed between them. What is above all that the later neighbour allows, or below all that the
    earlier one allows, is not. What neither allows but lies between them may be allowed by this release alone."""
    LIST = "list"
    """Each release has a list of values with gaps, such as builds or partners. A value may vanish and return, so that
    nothing is allowed between two releases that list it. Neither end of the list ever falls: what is above all of the
    later neighbour, or below all of the earlier one, is not in it."""
    CODE = "code"
    """Each release has a list of device code. Code for the oldest generation of GPUs comes and goes: builds of torch
    for CUDA 12.8 have code for 7.0 in 2.8 and 2.9, not in 2.7 and 2.11. So a GPU that both neighbours run is run
    between them where both also have code for an older generation, and one that neither runs is not where it is older
    than the oldest generation of both, or later than all code of the later one."""


class Consequence(StrEnum):
    """What happens to a job where a relation does not hold."""

    FAILS = "fails"
    """It cannot start or compute."""
    UNSUPPORTED = "unsupported"
    """It may run; its vendor does not support it."""
    NOT_PUBLISHED = "not published"
    """The vendor has not published such a build; somebody else may have made one, and that one may work."""


@dataclass(frozen=True)
class Statement:
    """What one document says about one release."""

    release: Release
    allows: Releases | DeviceCode
    unclear: Releases | None = None
    """Values for which the document says neither yes nor no."""
    given: Mapping[str, str] = field(default_factory=dict)
    """Further facts for which alone it holds, such as the CUDA version of a build: name to the beginning of a value."""
    note: str = ""
    """What the document adds to its yes."""
    unclear_note: str = ""
    """Why the values of `unclear` are unclear."""
    source: str = ""
    """The document and its section."""
    as_of: str = ""
    """Day on which the document was read, as YYYY-MM-DD."""

    def says(self, value: str) -> bool | None:
        """Whether a value is allowed; None where the statement is not about it. Raises ValueError for no version."""
        allowed = self.allows.allows(value)
        if allowed is False and self.unclear is not None and self.unclear.allows(value) is not False:
            return None
        return allowed

    def above(self, value: str) -> bool:
        """Whether a value is certainly higher than all that this statement allows or leaves open."""
        return self.allows.above(value) and (self.unclear is None or self.unclear.above(value))

    def below(self, value: str) -> bool:
        """Whether a value is certainly lower than all that this statement allows or leaves open."""
        return self.allows.below(value) and (self.unclear is None or self.unclear.below(value))

    def has_code_before(self, value: str) -> bool:
        """Whether it has device code for an older generation than that of a GPU."""
        return isinstance(self.allows, DeviceCode) and self.allows.oldest < read_capability(value).major

    def has_no_code_before(self, value: str) -> bool:
        """Whether all of its device code is for later generations than that of a GPU."""
        return isinstance(self.allows, DeviceCode) and self.allows.oldest > read_capability(value).major

    def holds_for(self, facts: Mapping[str, str]) -> bool:
        """Whether the further facts are given."""
        return all(_begins(facts.get(name, ""), value) for name, value in self.given.items())


@dataclass(frozen=True)
class Relation:
    """All statements of one kind. Raises ValueError that names the key when one cannot be used."""

    name: str
    subject: str
    """The fact whose releases the statements name."""
    about: str
    """The fact whose values they allow."""
    inference: Inference
    consequence: Consequence
    question: str
    """What is asked, as a format string with `{release}` and `{value}`."""
    remedy: str
    """What to do where it does not hold, as a format string with `{allows}` too."""
    statements: tuple[Statement, ...]
    builds: tuple[str, ...] = ("*",)
    """Patterns of the build tags that the documents are about; of another build nothing is known."""
    unless: str = ""
    """A fact with which an answer `incompatible` is not certain any more."""
    unless_note: str = ""
    pairs: Releases | None = None
    """Values that are made for one minor release of the subject alone: each torchvision asks for its own torch."""
    listed: str = ""
    """A fact in which the build itself lists its device code. It counts in place of all statements."""
    listed_source: str = ""
    as_of: str = ""

    def __post_init__(self) -> None:
        for key in ("question", "remedy"):
            try:
                getattr(self, key).format(release="", value="", allows="")
            except (KeyError, IndexError, ValueError):
                raise ValueError(f"{self.name}: {key}: names other values than release, value, allows") from None

    def is_about(self, release: Release) -> bool:
        """Whether the documents are about such a build."""
        return release.final and any(fnmatchcase(release.build, pattern) for pattern in self.builds)

    def without(self, releases: Iterable[Release]) -> Relation:
        """The relation without the statements about these releases."""
        left_out = {release.numbers for release in releases}
        return replace(self, statements=tuple(s for s in self.statements if s.release.numbers not in left_out))


T = TypeVar("T")
E = TypeVar("E", bound=StrEnum)
_TEXTS = ("subject", "about", "question", "remedy", "source")
_OPTIONAL_TEXTS = ("unless", "unless_note", "listed", "listed_source")
_OF_STATEMENT = {"release", "allows", "code", "unclear", "given", "note", "unclear_note", "source", "as_of"}


def read_relation(name: str, text: str) -> Relation:
    """The relation of one data file. Raises ValueError that names the file, the statement and the key."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{name}: not TOML: {error}") from None
    unknown = data.keys() - {
        *_TEXTS,
        *_OPTIONAL_TEXTS,
        "builds",
        "as_of",
        "inference",
        "consequence",
        "pairs",
        "statement",
    }
    if unknown:
        raise ValueError(f"{name}: {min(unknown)}: not a key of a relation")
    texts = {key: _text(data, key, name) for key in _TEXTS}
    texts |= {key: _text(data, key, name) for key in _OPTIONAL_TEXTS if key in data}
    source, as_of = texts.pop("source"), _day(data, name)
    builds = data.get("builds", ["*"])
    if not isinstance(builds, list) or not all(isinstance(pattern, str) for pattern in builds):
        raise ValueError(f"{name}: builds: expected a list of patterns")
    rows = data.get("statement")
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        raise ValueError(f"{name}: statement: expected at least one table [[statement]]")
    return Relation(
        name,
        inference=_member(Inference, data, "inference", name),
        consequence=_member(Consequence, data, "consequence", name),
        statements=tuple(_statement(row, source, as_of, f"{name}: statement {n}") for n, row in enumerate(rows, 1)),
        builds=tuple(builds),
        pairs=_parse(read_releases, data, "pairs", name) if "pairs" in data else None,
        as_of=as_of,
        **texts,
    )


def _statement(row: Mapping[str, Any], source: str, as_of: str, where: str) -> Statement:
    unknown = row.keys() - _OF_STATEMENT
    if unknown:
        raise ValueError(f"{where}: {min(unknown)}: not a key of a statement")
    if ("allows" in row) == ("code" in row):
        raise ValueError(f"{where}: allows: write either `allows` or `code`")
    given = row.get("given", {})
    if not isinstance(given, dict) or not all(isinstance(value, str) for value in given.values()):
        raise ValueError(f"{where}: given: expected names with texts")
    read_allows: Callable[[str], Releases | DeviceCode] = read_releases if "allows" in row else read_device_code
    return Statement(
        _parse(read_release, row, "release", where),
        _parse(read_allows, row, "allows" if "allows" in row else "code", where),
        _parse(read_releases, row, "unclear", where) if "unclear" in row else None,
        given,
        _text(row, "note", where) if "note" in row else "",
        _text(row, "unclear_note", where) if "unclear_note" in row else "",
        _text(row, "source", where) if "source" in row else source,
        _day(row, where) if "as_of" in row else as_of,
    )


def _parse(read: Callable[[str], T], row: Mapping[str, Any], key: str, where: str) -> T:
    text = _text(row, key, where)
    try:
        return read(text)
    except ValueError as error:
        raise ValueError(f"{where}: {key}: {error}") from None


def _text(data: Mapping[str, Any], key: str, where: str) -> str:
    value = data.get(key)
    if not isinstance(value, str) or not value:
        raise ValueError(f"{where}: {key}: missing or no text")
    return value


def _member(kind: type[E], data: Mapping[str, Any], key: str, where: str) -> E:
    text = _text(data, key, where)
    if text not in set(kind):
        raise ValueError(f"{where}: {key}: expected one of {', '.join(kind)}")
    return kind(text)


def _day(data: Mapping[str, Any], where: str) -> str:
    value = data.get("as_of")
    if not isinstance(value, datetime.date):
        raise ValueError(f"{where}: as_of: missing or no day such as 2026-11-24")
    return value.isoformat()


def _begins(value: str, beginning: str) -> bool:
    """Whether a value is another one, or that one with further parts."""
    return value == beginning or value.startswith(f"{beginning}.")
