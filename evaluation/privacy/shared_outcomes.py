"""What tenants tell: how long a name may live, what it gives away, and what liars can do with it."""

from __future__ import annotations

import random
from collections import defaultdict

from evaluation.figures import Figures
from pharoah_learning.evidence import OutcomeReport
from pharoah_learning.shared_outcomes import holds, learn_shared_outcomes

ORGANISATIONS, ARCHETYPES = 60, 400
RUNS_A_DAY = 6
USUAL_FAILURES, BROKEN_FAILURES = 0.05, 0.97
PERIODS = (1, 7, 30)


def poisoning(figures: Figures, chance: random.Random, trials: int) -> None:
    """A fifth of the organisations lie, once to condemn what works, once to hide what fails."""
    flipped = suppressed = broken_rows = 0
    for _ in range(trials):
        told = chance.randrange(10, 200)
        hostile = told // 5
        for broken in (False, True):
            rate = BROKEN_FAILURES if broken else USUAL_FAILURES
            honest = [chance.random() < rate for _ in range(told - hostile)]
            without = holds(sum(honest), len(honest))
            votes = _votes([*honest, *[not broken] * hostile])
            found = bool(learn_shared_outcomes(votes))
            flipped += found and not without
            broken_rows += without and broken
            suppressed += without and broken and not found
    figures.add("poisoning_rows_flipped", flipped, "0", flipped == 0, f"of {trials} working jobs")
    figures.add("poisoning_rows_suppressed", suppressed, interval=f"of {broken_rows} failing jobs")


def lifetimes(figures: Figures, chance: random.Random, draws: int) -> list[tuple[int, float, float]]:
    """(days, share of failing archetypes that get a row, runs of one organisation under one name), of so many draws.

    Linking enough runs and unlinkability pull apart: this is by how much.
    """
    rows = []
    for days in PERIODS:
        drawn = [_lived(days, chance) for _ in range(draws)]
        found, false, linked = (sum(values) / draws for values in zip(*drawn, strict=True))
        rows.append((days, found, linked))
        if days == 7:
            figures.add("names_failing_jobs_found", found, interval=f"names live 7 days, n={draws}")
            figures.add("names_runs_linked", linked, interval="of one organisation, in 7 days")
            figures.add("names_false_rows", false, "0", not false)
    return rows


def _lived(days: int, chance: random.Random) -> tuple[float, float, float]:
    """Share of failing archetypes that get a row, rows about others, runs of one organisation under one name."""
    weights = [1 / (rank + 1) for rank in range(ARCHETYPES)]
    failing = set(range(0, 40, 4))
    runs: dict[tuple[int, int], list[bool]] = defaultdict(list)
    for organisation in range(ORGANISATIONS):
        own = chance.choices(range(ARCHETYPES), weights, k=5)  # what this organisation works on
        for archetype in chance.choices(own, k=RUNS_A_DAY * days):
            rate = BROKEN_FAILURES if archetype in failing else USUAL_FAILURES
            runs[archetype, organisation].append(chance.random() < rate)
    votes = [
        OutcomeReport(f"{a}/{o}/{n}".encode(), 1, f"{a:x}", f"o{o}", "ctx", failed)
        for (a, o), ended in runs.items()
        for n, failed in enumerate(ended)
    ]
    found = {int(row.tokens[0].removeprefix("name="), 16) for row in learn_shared_outcomes(votes)}
    return len(found & failing) / len(failing), len(found - failing), sum(map(len, runs.values())) / len(runs)


def _votes(failed: list[bool]) -> list[OutcomeReport]:
    return [OutcomeReport(bytes([n % 256, n // 256]), 1, "ab", f"o{n}", "ctx", value) for n, value in enumerate(failed)]
