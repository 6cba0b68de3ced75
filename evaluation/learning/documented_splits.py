"""Documented relations asked about what was taken out of them at random: whole releases and single facts.

A split takes out releases of each relation, and of the releases that stay single values. What is left is asked
everything that the whole says. An answer is wrong when the whole says the opposite. The share that is taken out differs
from split to split, so that neighbours are near in some and far in others.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, replace

from evaluation.learning.documented_questions import Counts, Question, ask, questions, values_of
from pharoah_archetypes.documented import Compatibility, Relation, Statement
from pharoah_archetypes.documented.knowledge import answer

SPLITS = 20
SHARES = (0.1, 0.5)
"""The least and the greatest share of its releases that a relation loses."""


@dataclass(frozen=True)
class PartialStatement(Statement):
    """A statement that does not say anything any more about some values."""

    forgotten: frozenset[str] = frozenset()

    def says(self, value: str) -> bool | None:
        return None if value in self.forgotten else super().says(value)


@dataclass
class SplitCounts:
    """Answers of one or several splits."""

    ours: Counts
    """About releases that were taken out, and the wrong ones about those that stayed."""
    both_neighbours: Counts
    """The rule that takes over an answer which the releases just before and just after give."""


def ask_splits(relations: Iterable[Relation], seed: int, splits: int) -> SplitCounts:
    """Ask all relations in `splits` splits, each with a seed of its own."""
    counts = SplitCounts(Counts(), Counts())
    everything = [(one, list(questions(one, {statement.release for statement in one.statements}))) for one in relations]
    for split in range(splits):
        rng = random.Random(f"{seed} {split}")
        for whole, asked in everything:
            left = without_some(whole, rng)
            releases = {statement.release for statement in left.statements}
            for question in asked:
                if question.release not in releases:
                    ask(left, question, counts.ours)
                    counts.both_neighbours.add(question.expected, both_neighbours(left, question), str(question))
                else:  # a fact that is there or one that is forgotten: only a wrong answer is of interest
                    stays = answer(left, question.facts).compatibility
                    if stays not in (question.expected, Compatibility.UNKNOWN):
                        counts.ours.add(question.expected, stays, str(question))
    return counts


def without_some(whole: Relation, rng: random.Random) -> Relation:
    """A relation without some of its releases and, in those that stay, without some single values."""
    share = rng.uniform(*SHARES)
    releases = sorted({statement.release for statement in whole.statements})
    out = {release for release in releases if rng.random() < share} or {rng.choice(releases)}
    left = whole.without(out)
    values = sorted(set(values_of(whole)))
    return replace(left, statements=tuple(_partial(left.statements, values, rng, share / 2)))


def _partial(
    statements: Iterable[Statement], values: list[str], rng: random.Random, share: float
) -> Iterator[Statement]:
    for statement in statements:
        forgotten = frozenset(value for value in values if rng.random() < share)
        whole = {field.name: getattr(statement, field.name) for field in fields(statement)}
        yield PartialStatement(**whole, forgotten=forgotten)


def both_neighbours(left: Relation, question: Question) -> Compatibility:
    """The answer that the releases just before and just after give; unknown where they differ or one is missing."""
    fitting = [one.release for one in left.statements if one.holds_for(question.facts)]
    earlier = [release for release in fitting if release.numbers < question.release.numbers]
    later = [release for release in fitting if release.numbers > question.release.numbers]
    if not earlier or not later:
        return Compatibility.UNKNOWN
    said = {
        answer(left, {**question.facts, left.subject: str(release)}).compatibility
        for release in (max(earlier), min(later))
    }
    return said.pop() if len(said) == 1 else Compatibility.UNKNOWN
