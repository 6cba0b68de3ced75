"""Questions to documented relations whose answers are in a table, and counts of what is answered."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from pharoah_archetypes.documented import Compatibility, Relation
from pharoah_archetypes.documented.device_code import DeviceCode
from pharoah_archetypes.documented.knowledge import answer
from pharoah_archetypes.documented.releases import Release, Releases, read_release

PYTHONS = [f"3.{minor}" for minor in range(5, 19)]
CUDAS = [
    f"{major}.{minor}" for major, minors in ((9, 3), (10, 3), (11, 9), (12, 10), (13, 4)) for minor in range(minors)
]
GENERATIONS = {
    3: (0, 5, 7),
    5: (0, 2),
    6: (0, 1),
    7: (0, 2, 5),
    8: (0, 6, 7, 9),
    9: (0,),
    10: (0, 3),
    11: (0,),
    12: (0, 1),
}
CAPABILITIES = [f"{major}.{minor}" for major, minors in GENERATIONS.items() for minor in minors]
ALWAYS_ASKED = {"python": PYTHONS, "cuda": CUDAS, "capability": CAPABILITIES}
"""Values that are asked about besides those that a table names."""


@dataclass
class Counts:
    """Answers of one table."""

    right: int = 0
    unknown: int = 0
    wrong: int = 0
    examples: list[str] = field(default_factory=list)
    """Questions that were answered wrong."""

    def add(self, expected: Compatibility, given: Compatibility, question: str) -> None:
        self.right += given is expected
        self.unknown += given is Compatibility.UNKNOWN
        if given not in (expected, Compatibility.UNKNOWN):
            self.wrong += 1
            self.examples.append(f"{question}: {given}, and the document says {expected}")

    @property
    def asked(self) -> int:
        return self.right + self.unknown + self.wrong


@dataclass(frozen=True)
class Question:
    """One question whose answer is in a table."""

    relation: Relation
    release: Release
    value: str
    given: tuple[tuple[str, str], ...]
    expected: Compatibility

    @property
    def facts(self) -> dict[str, str]:
        return {self.relation.subject: str(self.release), self.relation.about: self.value, **dict(self.given)}

    def __str__(self) -> str:
        return f"{self.relation.subject} {self.release}, {self.relation.about} {self.value}"


def questions(relation: Relation, releases: set[Release]) -> Iterator[Question]:
    """All questions about some releases that the table answers with yes or no."""
    values = sorted(set(values_of(relation)), key=lambda value: read_release(value).numbers)
    conditions = sorted({tuple(sorted(statement.given.items())) for statement in relation.statements})
    for release in sorted(releases, key=lambda one: one.numbers):
        for given in conditions:
            for value in values:
                facts = {relation.subject: str(release), relation.about: value, **dict(given)}
                expected = answer(relation, facts).compatibility
                if expected is not Compatibility.UNKNOWN:
                    yield Question(relation, release, value, given, expected)


def values_of(relation: Relation) -> Iterator[str]:
    """Values to ask about: all that the table names, those just below them, and the usual ones."""
    yield from ALWAYS_ASKED.get(relation.about, ())
    for statement in relation.statements:
        if isinstance(statement.allows, DeviceCode):
            yield from (str(code.capability) for code in statement.allows.codes)
        elif isinstance(statement.allows, Releases):
            for bound in (one.bound for bounds in statement.allows.ranges for one in bounds):
                yield str(bound)
                if bound.numbers[-1]:
                    yield str(Release((*bound.numbers[:-1], bound.numbers[-1] - 1)))


def ask(relation: Relation, question: Question, counts: Counts) -> None:
    """Ask a relation one question."""
    counts.add(question.expected, answer(relation, question.facts).compatibility, str(question))
