"""Campaigns whose budget is short: which share of their rows they decide, beside the order of the plan.

The cells are simulated: how long each takes and how often it fails is drawn. What is chosen, and when the budget is
used up, is decided by the code that runs campaigns. A row is decided when it has the severity that it has after all
blocks.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import replace

from evaluation.figures import Figures
from pharoah_benchmarks.campaign.cell import Cell
from pharoah_benchmarks.campaign.plan import CampaignPlan
from pharoah_protocol.vocabulary import Outcome, Severity
from pharoah_provider.campaigns.budget import Budget
from pharoah_provider.campaigns.open_works import OpenWorks, first_of
from pharoah_provider.campaigns.schedule import schedule_without_context
from pharoah_provider.campaigns.works import Work, WorkState

CAMPAIGNS, QUICK_CAMPAIGNS = 60, 12
WORKLOADS, SETTINGS, REPEATS = 12, 4, 6
SHARES = (0.25, 0.5, 0.75)
"""Budgets, as shares of the time that the whole campaign takes."""
KEY_SHARE = 0.5
"""The budget of the figure."""
FAILING, MIXED = 0.10, 0.10
"""Shares of cells that always fail, and that fail sometimes. In the campaigns of this repository one cell in ten fails
on a small node (`python -m evaluation loop`)."""
RARE_FAILURE = 0.01
"""How often a cell fails that works."""
FAILED_BLOCKS_TO_BLOCK = 5
"""A row blocks after so many failures in as many blocks (ADR 21)."""

Severities = dict[str, Severity]


class _Truth:
    """What the cells of one campaign do: the same for every order in which they run."""

    def __init__(self, seed: str) -> None:
        rng = random.Random(seed)
        cells = [
            Cell(f"w{workload}/{setting}#{repeat}", f"w{workload}", {"point": setting}, repeat=repeat)
            for workload in range(WORKLOADS)
            for setting in range(SETTINGS)
            for repeat in range(REPEATS)
        ]
        self.works = schedule_without_context(CampaignPlan("simulated", tuple(cells), ()), rng.randrange(1 << 31))
        contents = sorted({cell.content for cell in cells})
        weights = [FAILING, MIXED, 1 - FAILING - MIXED]
        rate = {content: rng.choices([1.0, rng.uniform(0.2, 0.8), RARE_FAILURE], weights)[0] for content in contents}
        typical = {f"w{workload}": rng.lognormvariate(1.0, 0.8) for workload in range(WORKLOADS)}
        self.failed = {cell.id: rng.random() < rate[cell.content] for cell in cells}
        self.seconds = {cell.id: typical[cell.workload] * rng.lognormvariate(0.0, 0.2) for cell in cells}
        self.whole = _severities(self._done(work) for work in self.works)

    def _done(self, work: Work) -> Work:
        assert work.cell is not None
        outcome = Outcome.ERROR if self.failed[work.cell.id] else Outcome.OK
        return replace(work, state=WorkState.DONE, outcome=outcome)

    def decided(self, share: float, by_information: bool) -> float:
        """The share of rows that a campaign decides within a share of the time that it takes as a whole."""
        limit, now = share * sum(self.seconds.values()), 0.0
        budget, works = Budget(limit, self.works), OpenWorks(self.works)
        done: list[Work] = []
        while (work := works.take("n", "", 1, False, _chooser(budget, now, by_information))) is not None:
            assert work.cell is not None
            budget.begin(work, works.block(work.block), now)
            ended = replace(self._done(work), began_at=now, ended_at=now + self.seconds[work.cell.id])
            if ended.ended_at > limit:
                break
            now = ended.ended_at
            budget.end(ended, now)
            works.finish(ended)
            done.append(ended)
        found = _severities(done)
        return sum(found.get(content) == severity for content, severity in self.whole.items()) / len(self.whole)


def measure(figures: Figures, arguments: argparse.Namespace) -> None:
    """Run each simulated campaign with each budget, by information and in the order of the plan."""
    campaigns = [
        _Truth(f"{arguments.seed}/{number}") for number in range(QUICK_CAMPAIGNS if arguments.quick else CAMPAIGNS)
    ]
    rows = []
    for share in SHARES:
        informed, planned = ([one.decided(share, way) for one in campaigns] for way in (True, False))
        better = Counter((a > b) - (a < b) for a, b in zip(informed, planned, strict=True))
        means = [sum(values) / len(values) for values in (informed, planned)]
        rows.append([f"{share:.0%}", *(f"{mean:.3f}" for mean in means), f"{better[1]} / {better[0]} / {better[-1]}"])
        if share == KEY_SHARE:
            interval = f"{len(campaigns)} campaigns, better in {better[1]}, worse in {better[-1]}"
            figures.add("budget_decided_ratio", means[0], "> plan order", means[0] > means[1], interval)
            figures.add("budget_decided_ratio_plan_order", means[1])
    columns = ("budget of the whole time", "rows decided, by information", "in the order of the plan",
               "better / equal / worse")  # fmt: skip
    figures.table("Rows that a campaign decides when its budget is short.", columns, rows)


def _chooser(budget: Budget, now: float, by_information: bool) -> Callable[[Iterable[list[Work]]], list[Work] | None]:
    return (lambda blocks: budget.choose(blocks, 1, now)) if by_information else first_of


def _severities(works: Iterable[Work]) -> Severities:
    """What the row of each cell says after these blocks."""
    outcomes: dict[str, list[bool]] = defaultdict(list)
    for work in works:
        assert work.cell is not None
        outcomes[work.cell.content].append(work.outcome is not Outcome.OK)
    return {content: _severity(failed) for content, failed in outcomes.items()}


def _severity(failed: list[bool]) -> Severity:
    if all(failed) and len(failed) >= FAILED_BLOCKS_TO_BLOCK:
        return Severity.BLOCK
    return Severity.WARN if any(failed) else Severity.OK
