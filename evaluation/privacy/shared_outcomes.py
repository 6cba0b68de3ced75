"""Outcomes that tenants share: how long a pseudonym may live, what it reveals, and what malicious tenants achieve."""

from __future__ import annotations

import random
from collections import defaultdict
from typing import NamedTuple

from evaluation.figures import Figures
from pharoah_learning.evidence import OutcomeReport
from pharoah_learning.shared_outcomes import holds, learn_shared_outcomes
from pharoah_protocol.pseudonyms import PERIOD_SECONDS

ORGANISATIONS, ARCHETYPES = 60, 400
RUNS_A_DAY = 6
USUAL_FAILURES, BROKEN_FAILURES = 0.05, 0.97
PERIODS = (1, 7, 30)


def poisoning(figures: Figures, chance: random.Random, trials: int) -> None:
    """A fifth of the organisations send false reports, once to condemn what works, once to hide what fails."""
    flipped = suppressed = broken_rows = 0
    for _ in range(trials):
        organisations = chance.randrange(10, 200)
        malicious = organisations // 5
        for broken in (False, True):
            rate = BROKEN_FAILURES if broken else USUAL_FAILURES
            honest = [chance.random() < rate for _ in range(organisations - malicious)]
            without = holds(sum(honest), len(honest), organisations)
            found = bool(learn_shared_outcomes(_reports([*honest, *[not broken] * malicious])))
            flipped += found and not without
            broken_rows += without and broken
            suppressed += without and broken and not found
    figures.add("poisoning_rows_flipped", flipped, "0", flipped == 0, f"of {trials} working jobs")
    figures.add("poisoning_rows_suppressed", suppressed, interval=f"of {broken_rows} failing jobs")


class Lifetime(NamedTuple):
    """What one lifetime of pseudonyms leads to, in one simulated draw or as the mean of several."""

    found_ratio: float
    """Share of the failing archetypes that get a row."""
    false_rows: float
    """Rows about archetypes that do not fail."""
    linked_runs: float
    """Runs of one organisation under one pseudonym."""


def lifetimes(figures: Figures, chance: random.Random, draws: int) -> None:
    """Lifetimes beside each other: a longer one finds more failing archetypes and links more runs."""
    rows = []
    for days in PERIODS:
        drawn = [_simulated(days, chance) for _ in range(draws)]
        mean = Lifetime(*(sum(values) / draws for values in zip(*drawn, strict=True)))
        rows.append((f"{days} day{'s' * (days > 1)}", f"{mean.found_ratio:.2f}", f"{mean.linked_runs:.1f}"))
        if days == PERIOD_SECONDS // 86_400:
            note = f"a lifetime of {days} days, n={draws}"
            figures.add("pseudonyms_failing_jobs_found", mean.found_ratio, interval=note)
            figures.add("pseudonyms_runs_linked", mean.linked_runs, interval=f"of one organisation, in {days} days")
            figures.add("pseudonyms_false_rows", mean.false_rows, "0", not mean.false_rows)
    columns = ("lifetime of a pseudonym", "failing jobs that get a row", "runs of one organisation under one pseudonym")
    figures.table("", columns, rows)


def _simulated(days: int, chance: random.Random) -> Lifetime:
    """One draw: which archetypes each organisation works on, and how its runs end."""
    weights = [1 / (rank + 1) for rank in range(ARCHETYPES)]
    failing = set(range(0, 40, 4))
    runs: dict[tuple[int, int], list[bool]] = defaultdict(list)
    for organisation in range(ORGANISATIONS):
        own = chance.choices(range(ARCHETYPES), weights, k=5)  # what this organisation works on
        for archetype in chance.choices(own, k=RUNS_A_DAY * days):
            rate = BROKEN_FAILURES if archetype in failing else USUAL_FAILURES
            runs[archetype, organisation].append(chance.random() < rate)
    reports = [
        OutcomeReport(f"{a}/{o}/{n}".encode(), 1, f"{a:x}", f"o{o}", "ctx", failed)
        for (a, o), ended in runs.items()
        for n, failed in enumerate(ended)
    ]
    found = {int(row.tokens[0].removeprefix("name="), 16) for row in learn_shared_outcomes(reports)}
    linked = sum(map(len, runs.values())) / len(runs)
    return Lifetime(len(found & failing) / len(failing), len(found - failing), linked)


def _reports(failed: list[bool]) -> list[OutcomeReport]:
    """One report per organisation."""
    return [OutcomeReport(bytes([n % 256, n // 256]), 1, "ab", f"o{n}", "ctx", value) for n, value in enumerate(failed)]
