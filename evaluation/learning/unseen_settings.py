"""Warnings about jobs with settings that no campaign has tried, after campaigns in which settings fail.

Each campaign is a grid over a few values of a few settings on nodes of one or two device models. What fails has one
cause: a value of a setting, two values together, a length, or an architecture on a device model, whatever its settings.
Then jobs are asked about that have another dtype, kernel of attention, optimizer, checkpointing, compiler or size, and
also on a device model that nobody has tried. The baseline warns of whatever has failed in an architecture.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import NamedTuple

import numpy as np

from evaluation.figures import Figures
from evaluation.learning.asked_verdicts import AskedJob, OpenTable
from pharoah_archetypes import Fingerprint
from pharoah_archetypes.catalogue import catalogue
from pharoah_learning.context_rule import identity
from pharoah_learning.evidence import LeftOut, Trial
from pharoah_learning.release import LearnedRow, NodeKind
from pharoah_learning.table import LearnedTable, learn_table
from pharoah_protocol.vocabulary import Outcome, Severity, VerdictStatus

CAMPAIGNS, QUICK_CAMPAIGNS = 300, 40
JOBS = 12
"""Jobs that are asked about after each campaign, on each of its device models and on one that was not tried."""
MIN_KEPT = 0.9
REPEATS, NODES = 5, 3
"""How often a cell runs, and nodes of each device model."""
DEVICES = ("cpu-a", "cpu-b", "cpu-c")
CHOICES: dict[str, tuple[str, ...]] = {
    "dtype": ("float32", "float16", "bfloat16", "float8_e4m3fn"),
    "attention": ("flash", "math", "library"),
    "optimizer": ("adamw/forloop", "adamw/fused", "sgd/foreach"),
    "checkpointing": ("off", "on"),
    "compile": ("off", "inductor", "aot"),
}
SIZES: dict[str, tuple[int, ...]] = {"length": (128, 256, 512, 1024, 2048), "batch": (1, 2, 4, 8)}
DEFAULTS: dict[str, str | int] = {
    "dtype": "float32", "attention": "flash", "optimizer": "adamw/forloop", "checkpointing": "off", "compile": "off",
    "length": 128, "batch": 4,
}  # fmt: skip
"""What a cell has that does not state these settings."""

Stated = tuple[tuple[str, str | int], ...]
"""The settings that a cell states, in the order of their names."""


class Cause(NamedTuple):
    """Why cells fail."""

    outcome: Outcome
    values: tuple[tuple[str, str], ...] = ()
    """Settings that fail together; none for an architecture that fails with any settings."""
    device: str = ""
    """The device model on which they fail; on all where it is empty."""
    least_length: int = 0

    def harms(self, stated: Stated, device: str) -> bool:
        """Whether a job with these settings fails on such a node."""
        own = DEFAULTS | dict(stated)
        here = self.device in ("", device) and int(own["length"]) >= self.least_length
        return here and all(own[name] == value for name, value in self.values)


@dataclass
class Counts:
    """Answers about jobs that no campaign has tried."""

    worked: int = 0
    false: int = 0
    baseline_false: int = 0
    true: int = 0
    """Jobs of an architecture that fails on a device model: the baseline warns, and the evidence supports it."""
    kept: int = 0
    unsupported: int = 0
    """The same without such evidence: what did not vary may be the cause."""
    examples: list[tuple[str, str, str]] = field(default_factory=list)


def measure(figures: Figures, arguments: argparse.Namespace) -> None:
    """False warnings about jobs that work, and true ones that remain."""
    campaigns = QUICK_CAMPAIGNS if arguments.quick else CAMPAIGNS
    counts = Counts()
    for number in range(campaigns):
        _count(np.random.default_rng([arguments.seed, number]), counts)
    figures.add("unseen_setting_campaigns", campaigns)
    rate = counts.false / counts.worked
    figures.add("unseen_setting_false_warn_ratio", rate, "0", counts.false == 0, f"n={counts.worked} jobs on nodes")
    figures.ratio("true_warnings_kept_ratio", counts.kept, counts.true, MIN_KEPT)
    figures.ratio("unseen_setting_baseline_false_warn_ratio", counts.baseline_false, counts.worked)
    figures.add("unseen_setting_unsupported_warnings", counts.unsupported)
    if counts.examples:
        figures.table("Jobs that would have worked, with a warning:", ("job", "cause", "verdict"), counts.examples[:10])


def _count(rng: np.random.Generator, counts: Counts) -> None:
    """One campaign, and the jobs after it."""
    devices = DEVICES[: int(rng.integers(1, 3))]
    cause, cells = _draw_cause(rng, devices), _draw_cells(rng)
    table = learn_table(_trials(cells, devices, cause), LeftOut())
    own, baseline = _open(table, as_before=False), _open(table, as_before=True)
    failing = [stated for stated in cells if any(cause.harms(stated, device) for device in devices)]
    for stated in _unseen(cells, rng):
        job = AskedJob.of(_fingerprint(stated))
        for device in (*devices, DEVICES[-1]):
            verdict, simply = (one.verdict(job, _kind(device)) for one in (own, baseline))
            warned, simply_warned = _warns(verdict.status), _warns(simply.status)
            if not cause.harms(stated, device):
                counts.worked += 1
                counts.false += warned
                counts.baseline_false += simply_warned
                if warned:
                    counts.examples.append((str(stated), str(cause), f"{verdict.rung} {verdict.findings[0].code}"))
            elif simply_warned and not cause.values and not cause.least_length:
                supported = _supports(failing, stated)
                counts.true += supported
                counts.kept += supported and warned
                counts.unsupported += not supported


def _supports(failing: Sequence[Stated], job: Stated) -> bool:
    """Whether the evidence supports a warning about a job: what the job has otherwise than all cells that failed has
    varied among them, so has a size, and no setting was chosen for all of them: that one may be the cause."""
    seen = {name: {(DEFAULTS | dict(stated))[name] for stated in failing} for name in DEFAULTS}
    differs = [name for name, value in job if value not in seen[name]]
    chosen = [name for name in CHOICES if len(seen[name]) == 1 and DEFAULTS[name] not in seen[name]]
    sizes = any(len(seen[name]) > 1 for name in SIZES)
    return not chosen and sizes and all(len(seen[name]) > 1 for name in differs)


def _warns(status: VerdictStatus) -> bool:
    return status in (VerdictStatus.WARN, VerdictStatus.INCOMPATIBLE)


def _draw_cause(rng: np.random.Generator, devices: Sequence[str]) -> Cause:
    outcome = (Outcome.NAN, Outcome.ERROR, Outcome.CRASH)[int(rng.integers(3))]
    where = str(rng.choice([*devices, ""]))
    names = [str(one) for one in rng.permutation(list(CHOICES))]
    # What is left to the workload is what everybody trains with: a campaign tries what may fail.
    values = tuple((name, str(rng.choice([one for one in CHOICES[name] if one != DEFAULTS[name]]))) for name in names)
    match int(rng.integers(4)):
        case 0:
            return Cause(outcome, values[:1], where)
        case 1:
            return Cause(outcome, values[:2], where)
        case 2:
            return Cause(outcome, values[:1], where, least_length=int(rng.choice([256, 512, 1024])))
    return Cause(outcome, device=str(rng.choice(devices)))


def _draw_cells(rng: np.random.Generator) -> list[Stated]:
    """A campaign file: some settings with one value, some with several, the others left to the workload."""
    stated: dict[str, list[str | int]] = {}
    for name, values in (*CHOICES.items(), *SIZES.items()):
        most = int(rng.choice([0, 1, 2, 3], p=[0.35, 0.2, 0.3, 0.15]))
        if most:
            chosen = rng.choice(np.array(values, dtype=object), min(most, len(values)), replace=False)
            stated[name] = list(chosen)
    names = sorted(stated)
    return [tuple(zip(names, values, strict=True)) for values in product(*(stated[name] for name in names))][:48]


def _unseen(cells: Sequence[Stated], rng: np.random.Generator) -> Iterator[Stated]:
    """Jobs with a value that no cell of the campaign has."""
    tried = {name: {(DEFAULTS | dict(stated))[name] for stated in cells} for name in DEFAULTS}
    for _ in range(JOBS):
        job = {name: rng.choice(np.array(values, dtype=object)) for name, values in (*CHOICES.items(), *SIZES.items())}
        near = DEFAULTS | dict(cells[int(rng.integers(len(cells)))])
        changed = {str(one) for one in rng.choice(list(job), int(rng.integers(1, 4)), replace=False)}
        job = {name: job[name] if name in changed else near[name] for name in job}
        if any(job[name] not in tried[name] for name in job):
            yield tuple(sorted(job.items()))


def _kind(device: str) -> NodeKind:
    facts = (f"device={device}", "isa=avx2")
    return NodeKind(identity(facts), (*facts, "cpus=8", "memory_limit=0", "threads=8"))


def _fingerprint(stated: Stated) -> Fingerprint:
    own = DEFAULTS | dict(stated)
    skeleton = next(iter(catalogue().values())).skeleton
    width = 4 if own["dtype"] == "float32" else 2
    return Fingerprint(
        archetype=skeleton.archetype,
        compute=skeleton.archetype,
        grammar=skeleton.text,
        features={name: str(own[name]) for name in CHOICES},
        sizes={"parameters": 40_000_000, "activations": int(own["length"]) * int(own["batch"]) * 4096 * width},
        versions={"torch": "2.13.0"},
    )


def _trials(cells: Sequence[Stated], devices: Sequence[str], cause: Cause) -> list[Trial]:
    trials = []
    for stated in cells:
        text = _fingerprint(stated).to_json()
        for device in devices:
            kind = _kind(device)
            outcome = cause.outcome if cause.harms(stated, device) else Outcome.OK
            one = Trial(
                workload="gpt",
                settings={name: value for name, value in stated if name in SIZES or value != DEFAULTS[name]},
                context_id=identity(kind.facts),
                device_id=kind.device_id,
                outcome=outcome,
                step_seconds=(0.5, 0.5, 0.5) if outcome is Outcome.OK else (),
                fingerprint=text,
                own_fingerprints=(text,),
                facts=kind.facts,
            )
            trials += [
                replace(one, node=f"{device}-{node}", block=f"{repeat}", trial_id=f"{repeat} {node} {device} {stated}")
                for repeat in range(REPEATS)
                for node in range(NODES)
            ]
    return trials


def _open(table: LearnedTable, *, as_before: bool) -> OpenTable:
    """The rows as they are, or as if whatever informs warned."""

    def shown(row: LearnedRow) -> LearnedRow:
        return replace(row, severity=Severity.WARN) if as_before and row.severity is Severity.INFO else row

    rows = map(shown, (*table.rows, *table.nodes, *table.bands, *table.expanded))
    return OpenTable.of(rows, table.learned_contexts.rule)
