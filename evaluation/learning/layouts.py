"""False blocks over random sites: nodes with any devices and limits, jobs that fail for known causes.

Every cell of a campaign, and cells with sizes that it has not tried, are asked about on every node of the site, tried
or not, and on the nodes of another provider that imports the table. The baseline learns from the same trials without
their limits, as a learner does that takes a full memory for a property of the processor.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from evaluation.figures import Figures
from evaluation.learning.asked_verdicts import AskedJob, OpenTable
from evaluation.learning.simulated_layouts import (
    BATCHES,
    LENGTHS,
    End,
    Layout,
    Settings,
    draw_layout,
    fingerprint_of,
    run_campaign,
)
from pharoah_learning.context_rule import ALL_FACTS
from pharoah_learning.evidence import LeftOut, Trial
from pharoah_learning.portable_table import Imported, PortableTable, exportable, import_rows, read_table, write_table
from pharoah_learning.release import LearnedRow
from pharoah_learning.table import LearnedTable, learn_table
from pharoah_protocol.vocabulary import Outcome, VerdictStatus

LAYOUTS, QUICK_LAYOUTS = 400, 40
MIN_KEPT = 0.95
UNTRIED_SIZES = 6
"""Cells of other sizes that are asked about in each layout."""


@dataclass
class Counts:
    """Answers about jobs on nodes."""

    asked: int = 0
    false_blocks: int = 0
    false_warnings: int = 0
    baseline_false_blocks: int = 0
    true_blocks: int = 0
    """Jobs that fail for a cause that facts show, and that the baseline blocks."""
    kept: int = 0
    hidden_blocks: int = 0
    """Jobs that fail for a limit that their node does not state, and that the baseline blocks."""
    hidden_kept: int = 0


def measure(figures: Figures, arguments: argparse.Namespace) -> None:
    """Blocks of jobs that would have worked, and the blocks of the baseline that are true and remain."""
    layouts = QUICK_LAYOUTS if arguments.quick else LAYOUTS
    counts, examples = Counts(), list[tuple[str, str, str]]()
    for number in range(layouts):
        rng = np.random.default_rng([arguments.seed, number])
        examples += _count(draw_layout(rng), rng, counts)
    figures.add("layouts", layouts)
    figures.add("false_blocks", counts.false_blocks, "0", counts.false_blocks == 0, f"n={counts.asked} jobs on nodes")
    figures.ratio("true_blocks_kept_ratio", counts.kept, counts.true_blocks, MIN_KEPT)
    figures.add("layouts_false_warnings", counts.false_warnings)
    figures.add("layouts_baseline_false_blocks", counts.baseline_false_blocks)
    figures.ratio("layouts_hidden_limit_blocks_kept_ratio", counts.hidden_kept, counts.hidden_blocks)
    if examples:
        figures.table("Jobs that would have worked, and were blocked:", ("job", "node", "rung"), examples[:10])


def _count(layout: Layout, rng: np.random.Generator, counts: Counts) -> Iterator[tuple[str, str, str]]:
    """Ask about all jobs of a layout. Gives the false blocks."""
    trials = run_campaign(layout, rng)
    table, blind = _learned(trials, layout), _learned([_without_cause(trial) for trial in trials], layout)
    own, others = _open(table), OpenTable.of(_imported(table, layout), ALL_FACTS)
    baseline, baseline_others = _open(blind), OpenTable.of(_imported(blind, layout), ALL_FACTS)
    jobs = [*layout.cells, *_untried(layout, rng)]
    prints = {job: AskedJob.of(fingerprint_of(job)) for job in jobs}
    known = [(node, own, baseline) for node in layout.nodes]
    known += [(node, others, baseline_others) for node in layout.strangers]
    for node, asked, simple in known:
        for job in jobs:
            end = layout.end(job, node)
            verdict = asked.verdict(prints[job], node.kind)
            simply = simple.verdict(prints[job], node.kind).status is VerdictStatus.INCOMPATIBLE
            _add(counts, end, verdict.status, simply, job in layout.cells)
            if end.outcome is Outcome.OK and verdict.status is VerdictStatus.INCOMPATIBLE:
                yield str(tuple(job)), " ".join(node.facts), verdict.rung


def _add(counts: Counts, end: End, status: VerdictStatus, simply_blocked: bool, tried: bool) -> None:
    blocked, works = status is VerdictStatus.INCOMPATIBLE, end.outcome is Outcome.OK
    counts.asked += 1
    counts.false_blocks += blocked and works
    counts.false_warnings += status is VerdictStatus.WARN and works
    counts.baseline_false_blocks += simply_blocked and works
    if simply_blocked and not works and tried:
        if end.stated:
            counts.true_blocks += 1
            counts.kept += blocked
        else:
            counts.hidden_blocks += 1
            counts.hidden_kept += blocked


def _learned(trials: Iterable[Trial], layout: Layout) -> LearnedTable:
    return learn_table(trials, LeftOut(), fleet=sorted({node.kind for node in layout.nodes}))


def _without_cause(trial: Trial) -> Trial:
    """The same failure, as one that names no limit."""
    if trial.limit is None or trial.outcome is Outcome.TIMEOUT:
        return trial  # what has timed out warns at most, with its cause or without it
    return replace(trial, limit=None, outcome=Outcome.CRASH)


def _open(table: LearnedTable) -> OpenTable:
    rows = (*table.rows, *table.nodes, *table.bands, *table.expanded)
    return OpenTable.of(rows, table.learned_contexts.rule)


def _imported(table: LearnedTable, layout: Layout) -> list[LearnedRow]:
    """What another provider has of the signed table, without trials of its own."""
    devices = {node.kind.device_id: node.device_facts for node in layout.nodes}
    rows = exportable(table.rows, devices)
    used = {row.group_id for row in rows}
    described = {name: facts for name, facts in devices.items() if name in used}
    key = Ed25519PrivateKey.generate()
    content = write_table(PortableTable(1, 0.0, described, tuple(rows)), key)
    return import_rows([], [Imported("other", read_table(content, key.public_key().public_bytes_raw()))])


def _untried(layout: Layout, rng: np.random.Generator) -> list[Settings]:
    """Cells of the campaign in other sizes."""
    chosen = rng.integers(len(layout.cells), size=UNTRIED_SIZES)
    drawn = [
        layout.cells[one]._replace(length=int(rng.choice(LENGTHS)), batch=int(rng.choice(BATCHES))) for one in chosen
    ]
    return sorted(set(drawn) - set(layout.cells))
