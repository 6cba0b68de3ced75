"""Documented compatibility, asked about releases that were taken out of the documents.

Knowledge is built from a table without a release, and asked everything that the table says about it. An answer is wrong
when the table says the opposite; `unknown` is allowed. Releases are taken out one by one, whole series of them at once
(2.1.0 to 2.1.2), and halves of the table at random. Beside it stands the rule that copies the answer of the nearest
release. The data that come with Pharoah are asked the same questions with nothing taken out.

Random splits of these tables and of our own data take out single facts too (`documented_splits`).
"""

from __future__ import annotations

import argparse
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from evaluation.figures import Figures
from evaluation.learning.documented_questions import Counts, Question, ask, questions
from evaluation.learning.documented_splits import SPLITS, ask_splits
from evaluation.learning.documented_tables import relations_of
from pharoah_archetypes.documented import Compatibility, Relation, documents
from pharoah_archetypes.documented.knowledge import answer
from pharoah_archetypes.documented.releases import Release
from pharoah_learning.models.proportions import wilson

FOLDER = "compat_facts"
HALVES, QUICK_HALVES = 50, 5
QUICK_SPLITS = 1
MAX_UNKNOWN = 0.40
"""The greatest share of held-out questions that may stay unknown."""


def measure(figures: Figures, arguments: argparse.Namespace) -> None:
    """The answers about releases that are taken out, and those of our own data."""
    folder = folder_of(arguments.data)
    _splits(figures, arguments, folder)
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


def _splits(figures: Figures, arguments: argparse.Namespace, folder: Path | None) -> None:
    """Answers in random splits of the tables, where they are there, and of our own data."""
    splits = QUICK_SPLITS if arguments.quick else SPLITS
    sources = {"tables": [one for found in relations_of(folder).values() for one in found]} if folder else {}
    sources["own"] = list(documents().relations.values())
    counts = {name: ask_splits(relations, arguments.seed, splits) for name, relations in sources.items()}
    wrong = sum(one.ours.wrong for one in counts.values())
    asked = sum(one.ours.asked for one in counts.values())
    figures.add("documented_wrong", wrong, "0", wrong == 0, f"n={asked}, {splits} splits")
    rule = sum(one.both_neighbours.wrong for one in counts.values())
    figures.add("documented_both_neighbours_wrong", rule, interval=f"n={asked}")
    for name, one in counts.items():
        figures.ratio(f"documented_splits_{name}_unknown_ratio", one.ours.unknown, one.ours.asked)
        figures.details[f"splits {name} wrong"] = one.ours.examples[:20]
        figures.details[f"splits {name} both neighbours wrong"] = one.both_neighbours.examples[:20]


def _report(figures: Figures, totals: Counter[str]) -> None:
    asked = totals["heldout asked"]
    wrong = totals["heldout wrong"]
    figures.add("documented_heldout_wrong", wrong, "0", wrong == 0 and asked > 0, f"n={asked}")
    figures.ratio("documented_heldout_right_ratio", totals["heldout right"], asked)
    unknown, (low, high) = totals["heldout unknown"] / asked, wilson(totals["heldout unknown"], asked)
    interval = f"[{low:.2f}, {high:.2f}] n={asked}"
    figures.add("documented_heldout_unknown_ratio", unknown, f"<= {MAX_UNKNOWN}", unknown <= MAX_UNKNOWN, interval)
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
