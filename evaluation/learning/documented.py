"""Documented compatibility, asked about releases that were taken out of the documents.

Knowledge is built from a table without a release, and asked everything that the table says about it. An answer is wrong
when the table says the opposite; `unknown` is allowed. Releases are taken out one by one, whole series of them at once
(2.1.0 to 2.1.2), and halves of the table at random. Beside it stands the rule that copies the answer of the nearest
release. The data that come with Pharoah are asked the same questions with nothing taken out.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from evaluation.figures import Figures
from evaluation.learning.documented_tables import relations_of
from pharoah_archetypes.documented import Compatibility, Relation, documents
from pharoah_archetypes.documented.device_code import DeviceCode
from pharoah_archetypes.documented.knowledge import answer
from pharoah_archetypes.documented.releases import Release, Releases, read_release

FOLDER = "compat_facts"
HALVES, QUICK_HALVES = 50, 5
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


def measure(figures: Figures, arguments: argparse.Namespace) -> None:
    """The answers about releases that are taken out, and those of our own data."""
    folder = folder_of(arguments.data)
    if folder is None:
        for key in ("documented_heldout_wrong", "documented_own_wrong"):
            figures.skip(key, f"needs --data DIR with {FOLDER}/*.csv")
        return
    rng = random.Random(arguments.seed)
    halves = QUICK_HALVES if arguments.quick else HALVES
    rows, totals, left_out = [], Counter[str](), list[str]()
    for table, relations in relations_of(folder, left_out).items():
        held_out, alone, nearest, own = Counts(), Counts(), Counts(), Counts()
        for relation in relations:
            for without, releases in held_out_of(relation, rng, halves):
                for question in questions(relation, releases):
                    ask(without, question, held_out)
                    if len(releases) == 1:
                        ask(without, question, alone)
                    nearest.add(question.expected, nearest_answer(without, question), str(question))
            for question in questions(relation, {statement.release for statement in relation.statements}):
                ask_ours(question, own)
        for name, counts in (("heldout", held_out), ("alone", alone), ("nearest", nearest), ("own", own)):
            totals.update({f"{name} {what}": getattr(counts, what) for what in ("right", "unknown", "wrong", "asked")})
            figures.details[f"{table} {name} wrong"] = counts.examples[:20]
        rows.append([table, *(f"{one.right} / {one.unknown} / {one.wrong}" for one in (held_out, nearest, own))])
    _report(figures, totals)
    figures.add("documented_rows_left_out", len(left_out))
    figures.details["rows left out"] = left_out[:20]
    figures.table(
        "Answers that are right, unknown and wrong.",
        ["table", "release taken out", "nearest release instead", "our own data, nothing taken out"],
        rows,
    )


def _report(figures: Figures, totals: Counter[str]) -> None:
    asked = totals["heldout asked"]
    wrong = totals["heldout wrong"]
    figures.add("documented_heldout_wrong", wrong, "0", wrong == 0 and asked > 0, f"n={asked}")
    figures.ratio("documented_heldout_right_ratio", totals["heldout right"], asked)
    figures.ratio("documented_heldout_unknown_ratio", totals["heldout unknown"], asked)
    figures.ratio("documented_one_heldout_right_ratio", totals["alone right"], totals["alone asked"])
    figures.add("documented_nearest_release_wrong", totals["nearest wrong"], interval=f"n={totals['nearest asked']}")
    own_wrong, own_asked = totals["own wrong"], totals["own asked"]
    figures.add("documented_own_wrong", own_wrong, "0", own_wrong == 0 and own_asked > 0, f"n={own_asked}")
    figures.ratio("documented_own_right_ratio", totals["own right"], own_asked)
    figures.ratio("documented_own_unknown_ratio", totals["own unknown"], own_asked)


def folder_of(data: Path | None) -> Path | None:
    """The folder of the tables: the one that is given, or the one in it; None where there is none."""
    if data is None:
        return None
    return next((one for one in (data / FOLDER, data) if any(relations_of(one).values())), None)


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


def held_out_of(relation: Relation, rng: random.Random, halves: int) -> Iterator[tuple[Relation, set[Release]]]:
    """The relation without some releases, and these releases."""
    releases = sorted({statement.release for statement in relation.statements}, key=lambda one: one.numbers)
    series: dict[tuple[int, ...], set[Release]] = {}
    for release in releases:
        series.setdefault(release.numbers[:2], set()).add(release)
    taken = [{release} for release in releases]
    taken += [together for together in series.values() if len(together) > 1]
    taken += [set(rng.sample(releases, len(releases) // 2)) for _ in range(halves if len(releases) > 2 else 0)]
    for out in taken:
        yield relation.without(out), out


def ask(relation: Relation, question: Question, counts: Counts) -> None:
    """Ask a relation one question."""
    counts.add(question.expected, answer(relation, question.facts).compatibility, str(question))


def ask_ours(question: Question, counts: Counts) -> None:
    """Ask the data that come with Pharoah. What they have no relation for is unknown."""
    ours = [
        one
        for one in documents().relations.values()
        if (one.subject, one.about) == (question.relation.subject, question.relation.about)
    ]
    if ours:
        ask(ours[0], question, counts)
    else:
        counts.add(question.expected, Compatibility.UNKNOWN, str(question))


def nearest_answer(relation: Relation, question: Question) -> Compatibility:
    """The answer of the nearest release that is left: of the next earlier one, or else of the next later one."""
    fitting = [statement for statement in relation.statements if statement.holds_for(question.facts)]
    earlier = [one for one in fitting if one.release.numbers < question.release.numbers]
    later = [one for one in fitting if one.release.numbers > question.release.numbers]
    if not earlier and not later:
        return Compatibility.UNKNOWN
    nearest = (
        max(earlier, key=lambda one: one.release.numbers) if earlier else min(later, key=lambda o: o.release.numbers)
    )
    facts = {**question.facts, relation.subject: str(nearest.release)}
    return answer(relation, facts).compatibility
