"""Version numbers of releases, and the ranges of them that documents name.

A number may be less precise than another one: `2.6` names all releases 2.6.x. A comparison that would need the missing
part is undecided, which is None here, and never a guess.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

_RELEASE = re.compile(r"v?(\d{1,9}(?:\.\d{1,9}){0,5})([^+]*)(?:\+(.*))?")
_COMPARATOR = re.compile(r"(>=|<=|==|>|<)?\s*(\S+)")
_FINAL = re.compile(r"(\.x|\.post\d+)?")


class Release(NamedTuple):
    """A version number in its parts."""

    numbers: tuple[int, ...]
    """`2.6.0+cu124` has 2, 6, 0."""
    final: bool = True
    """Whether it is a published release: no alpha, beta, candidate or development version."""
    build: str = ""
    """What stands after the plus sign, such as `cu124`."""

    def __str__(self) -> str:
        return ".".join(map(str, self.numbers))

    def covers(self, other: Release) -> bool:
        """Whether the other number is this one, or this one with further parts: 2.6 covers 2.6.0."""
        return other.numbers[: len(self.numbers)] == self.numbers


def read_release(text: str) -> Release:
    """`2.6.0+cu124` in its parts; a trailing `.x` is dropped. Raises ValueError for a text that begins differently."""
    match = _RELEASE.fullmatch(text.strip())
    if not match:
        raise ValueError(f"{text!r} is not a version number")
    numbers = tuple(map(int, match[1].split(".")))
    return Release(numbers, bool(_FINAL.fullmatch(match[2])), match[3] or "")


def compare(value: Release, bound: Release) -> int | None:
    """-1, 0 or 1 for a value below, within or above a bound, as precise as the bound is; None where that is undecided.

    3.13.2 is within 3.13. Whether 3.13 is within 3.13.2 is undecided.
    """
    common = min(len(value.numbers), len(bound.numbers))
    mine, other = value.numbers[:common], bound.numbers[:common]
    if mine != other:
        return 1 if mine > other else -1
    return 0 if len(value.numbers) >= len(bound.numbers) else None


class Comparator(NamedTuple):
    """One bound of a range."""

    sign: str
    bound: Release

    def allows(self, value: Release) -> bool | None:
        """Whether a value keeps the bound; None where that is undecided."""
        order = compare(value, self.bound)
        if order is None:
            return None
        return {">=": order >= 0, ">": order > 0, "<=": order <= 0, "<": order < 0, "==": order == 0}[self.sign]

    def above(self, value: Release) -> bool:
        """Whether a value is certainly higher than everything that keeps the bound."""
        return self.sign in ("<=", "==", "<") and compare(value, self.bound) in ((0, 1) if self.sign == "<" else (1,))

    def below(self, value: Release) -> bool:
        """Whether a value is certainly lower than everything that keeps the bound."""
        return self.sign in (">=", "==", ">") and compare(value, self.bound) in ((0, -1) if self.sign == ">" else (-1,))


class Releases(NamedTuple):
    """A set of releases: ranges, of which each is a series of bounds that all have to be kept."""

    ranges: tuple[tuple[Comparator, ...], ...]
    text: str
    """The set as it is written in a data file."""

    def __str__(self) -> str:
        return self.text

    def allows(self, value: str) -> bool | None:
        """Whether a value is in the set; None where that is undecided. Raises ValueError for no version number."""
        release = read_release(value)
        return any_of(all_of(one.allows(release) for one in bounds) for bounds in self.ranges)

    def above(self, value: str) -> bool:
        """Whether a value is certainly higher than everything in the set."""
        release = read_release(value)
        return all(any(one.above(release) for one in bounds) for bounds in self.ranges)

    def below(self, value: str) -> bool:
        """Whether a value is certainly lower than everything in the set."""
        release = read_release(value)
        return all(any(one.below(release) for one in bounds) for bounds in self.ranges)


def read_releases(text: str) -> Releases:
    """`>=3.9,<=3.13`, or `11.8 | 12.4 | 12.6`, or `*` for everything. Raises ValueError that names the part."""
    if text.strip() == "*":
        return Releases(((),), text)
    return Releases(tuple(tuple(_bounds(part)) for part in text.split("|")), text)


def _bounds(text: str) -> Iterable[Comparator]:
    for part in text.split(","):
        match = _COMPARATOR.fullmatch(part.strip())
        if not match:
            raise ValueError(f"{text!r} is not a range of versions: write `>=3.9,<=3.13` or `11.8 | 12.4`")
        yield Comparator(match[1] or "==", read_release(match[2]))


def all_of(values: Iterable[bool | None]) -> bool | None:
    """Kleene's conjunction: False as soon as one is False, else undecided as soon as one is undecided."""
    known = list(values)
    return False if False in known else None if None in known else True


def any_of(values: Iterable[bool | None]) -> bool | None:
    """Kleene's disjunction: True as soon as one is True, else undecided as soon as one is undecided."""
    known = list(values)
    return True if True in known else None if None in known else False
