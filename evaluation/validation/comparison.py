"""False alarms and faults found when a node is compared with its fleet and its past, beside simpler methods.

Everything is simulated (`simulated_nodes`): it ranks methods and sizes tests, and forecasts nothing. Each share is over
fresh nodes and fresh references.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field

import numpy as np

from evaluation.figures import Figures
from evaluation.validation.simpler_comparisons import SIMPLER
from evaluation.validation.simulated_nodes import FAULTS, NO_FAULT, Fault, Healthy, simulated_runs
from pharoah_learning.evidence import BenchmarkResult
from pharoah_learning.fleet_comparison import LEVEL, Difference, compare_run, learn_criterion
from pharoah_learning.models.mantel_haenszel import Array
from pharoah_learning.models.proportions import wilson
from pharoah_learning.node_validation import learn_criteria, validate_node

NODES = 250
"""Healthy nodes of a reference, and nodes that are tested against it for each fault."""
ALARM_REFERENCES, REFERENCES, FEW_REFERENCES = 200, 20, 8
QUICK_ALARM_REFERENCES, QUICK_REFERENCES = 100, 2
"""False alarms take many references: the share of one in a hundred of them is above 2.6 % (Beta distribution with the
parameters 2 and 249)."""
MIN_POWER = 0.95
MIN_LEFT_OUT, MAX_GOOD_LEFT_OUT = 0.95, 0.003
BAD_SHARE = 0.05
BENCHMARKS = 8
FLEET, BOTH = "fleet", "fleet and past"
HEALTHY = "healthy"
CELLS = {HEALTHY: NO_FAULT, **FAULTS}


@dataclass
class Counts:
    """Nodes that were called slower, and nodes that were left out of references."""

    called: dict[str, dict[str, list[bool]]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(list)))
    """Method to fault to one value for each tested node."""
    bad_left_out: list[bool] = field(default_factory=list)
    good_left_out: list[bool] = field(default_factory=list)


def measure(figures: Figures, arguments: argparse.Namespace) -> None:
    """Measure the setting that bounds are for, and what changes with others."""
    rng = np.random.default_rng(arguments.seed)
    many, few = (QUICK_REFERENCES,) * 2 if arguments.quick else (REFERENCES, FEW_REFERENCES)
    alarm_references = QUICK_ALARM_REFERENCES if arguments.quick else ALARM_REFERENCES
    main = _counted(Healthy(), rng, many, simpler=True)
    _add_promises(figures, main, _counted(Healthy(), rng, alarm_references, cells=(HEALTHY,)))
    bad = {fault: _counted(Healthy(), rng, few, bad=FAULTS[fault]) for fault in ("2 %", "3 %", "5 %", "tail 1 %")}
    own = rng.spawn(1)[0]  # what else is drawn does not change with the number of these references
    _add_cleaning(figures, bad, _counted(Healthy(), own, alarm_references, bad=FAULTS["3 %"], cells=(HEALTHY,)))
    _add_benchmarks(figures, rng, few)
    _add_methods(figures, main)
    others = {
        "150 nodes": _counted(Healthy(), rng, few, nodes=150),
        "500 nodes": _counted(Healthy(), rng, few, nodes=500),
        "slow repeats 3 % slower": _counted(Healthy(slow_mean=0.03), rng, few),
        "no slow repeats": _counted(Healthy(slow_share=0.0), rng, few),
        "runs differ by 0.3 %": _counted(Healthy(run_sd=0.003), rng, few),
    }
    _add_settings(figures, others, bad)


def _counted(
    healthy: Healthy,
    rng: np.random.Generator,
    references: int,
    *,
    nodes: int = NODES,
    bad: Fault = NO_FAULT,
    simpler: bool = False,
    cells: Collection[str] = tuple(CELLS),
) -> Counts:
    """Learn from fresh references, in which a share of nodes has always had the fault `bad`, and test fresh
    nodes."""
    counts, planted = Counts(), round(BAD_SHARE * nodes) if bad != NO_FAULT else 0
    for _ in range(references):
        sick = simulated_runs(healthy, bad, planted, rng, always=True)
        values = np.concatenate([sick, simulated_runs(healthy, NO_FAULT, nodes - planted, rng)])
        criterion = learn_criterion({str(at): list(of) for at, of in enumerate(values)})
        left_out = set(map(int, criterion.left_out))
        counts.bad_left_out += [at in left_out for at in range(planted)]
        counts.good_left_out += [at in left_out for at in range(planted, nodes)]
        kept = values[[int(name) for name in criterion.nodes], -1]
        for name in cells:
            tested = simulated_runs(healthy, CELLS[name], NODES, rng)
            for method, past in ((FLEET, False), (BOTH, True)):
                found = (compare_run(criterion, of[-1], list(of[:-1]) if past else ()) for of in tested)
                counts.called[method][name] += [one.difference is Difference.SLOWER for one in found]
            for method, call in SIMPLER.items() if simpler else ():
                counts.called[method][name] += call(tested[:, -1], kept).tolist()
    return counts


def _share(
    figures: Figures,
    key: str,
    hits: list[bool],
    least: float | None = None,
    most: float | None = None,
    *,
    by_reference: bool = True,
) -> None:
    """A proportion with its Wilson interval, its standard error over references, and a bound for it.

    Nodes of one reference share its luck, so the standard error over references is the larger one.
    """
    value = sum(hits) / len(hits)
    low, high = wilson(sum(hits), len(hits))
    shown = _standard_error(hits) if by_reference else ""
    must = f">= {least:g}" if least is not None else f"<= {most:g}" if most is not None else ""
    holds = (least is None or value >= least) and (most is None or value <= most)
    figures.add(key, value, must, holds, f"[{low:.4f}, {high:.4f}] n={len(hits)}{shown}")


def _standard_error(hits: list[bool]) -> str:
    shares = np.array(hits, dtype=float).reshape(-1, NODES).mean(axis=1)
    return f", SE {shares.std(ddof=1) / np.sqrt(len(shares)):.4f} over {len(shares)} references"


def _add_promises(figures: Figures, counts: Counts, alarms: Counts) -> None:
    for method, suffix in ((FLEET, ""), (BOTH, "_with_past")):
        called = counts.called[method]
        _share(figures, f"fpr{suffix}", alarms.called[method][HEALTHY], most=LEVEL)
        _share(figures, f"power_2pct{suffix}", called["2 %"], MIN_POWER)
        _share(figures, f"power_tail_1pct{suffix}", called["tail 1 %"], MIN_POWER)


def _add_cleaning(figures: Figures, bad: dict[str, Counts], alarms: Counts) -> None:
    _share(figures, "cleaning_bad_left_out", bad["3 %"].bad_left_out, MIN_LEFT_OUT, by_reference=False)
    _share(figures, "cleaning_good_left_out", bad["3 %"].good_left_out, most=MAX_GOOD_LEFT_OUT, by_reference=False)
    for method, suffix in ((FLEET, ""), (BOTH, "_with_past")):
        _share(figures, f"fpr_reference_with_bad_nodes{suffix}", alarms.called[method][HEALTHY], most=LEVEL)
    _share(figures, "power_2pct_reference_with_bad_nodes", bad["3 %"].called[FLEET]["2 %"])


def _add_benchmarks(figures: Figures, rng: np.random.Generator, references: int) -> None:
    """A node has several benchmarks: false alarms in any of them, and a fault in one."""
    alarms: list[bool] = []
    found: list[bool] = []
    for _ in range(references):
        values = [simulated_runs(Healthy(), NO_FAULT, NODES, rng) for _ in range(BENCHMARKS)]
        criteria = learn_criteria(_results(values))
        for fault, into in ((NO_FAULT, alarms), (FAULTS["2 %"], found)):
            tested = [simulated_runs(Healthy(), fault if at == 0 else NO_FAULT, NODES, rng) for at in range(BENCHMARKS)]
            for node in range(NODES):
                results = _results([of[node : node + 1] for of in tested])
                newest = [one for one in results if one.started_at == values[0].shape[1] - 1]
                validated = validate_node(criteria, newest, [one for one in results if one not in newest])
                into.append(validated.difference is Difference.SLOWER)
    _share(figures, f"fpr_of_{BENCHMARKS}_benchmarks", alarms, most=LEVEL)
    _share(figures, f"power_2pct_in_1_of_{BENCHMARKS}_benchmarks", found)


def _results(values: list[Array]) -> list[BenchmarkResult]:
    """One result for each benchmark, node and run."""
    return [
        BenchmarkResult(f"{at}", f"n{node}", f"b{name}", False, float(at), at + 1.0, tuple(np.exp(run).tolist()))
        for name, of in enumerate(values)
        for node, runs in enumerate(of)
        for at, run in enumerate(runs)
    ]


def _add_methods(figures: Figures, counts: Counts) -> None:
    rows = [
        [method, *(f"{np.mean(called[name]):.3f}" for name in CELLS)] for method, called in _in_order(counts).items()
    ]
    columns = ["method", *CELLS]
    trials = len(counts.called[FLEET][HEALTHY])
    caption = (
        f"Shares of nodes that are called slower, at a level of {LEVEL:g}, {trials} nodes for each cell. The first "
        "column is false alarms. In the cells `tail`, a fifth of the repeats is 5 or 10 % slower, and in `rare tail` "
        "a tenth of them 10 %."
    )
    figures.table(caption, columns, rows)


def _in_order(counts: Counts) -> dict[str, dict[str, list[bool]]]:
    """The methods in the order in which the table has them: ours, then the simpler ones."""
    return {method: counts.called[method] for method in (BOTH, FLEET, *SIMPLER)}


def _add_settings(figures: Figures, others: dict[str, Counts], bad: dict[str, Counts]) -> None:
    rows = []
    for setting, counts in {**others, **{f"5 % of the nodes bad by {name}": of for name, of in bad.items()}}.items():
        dropped = f"{np.mean(counts.bad_left_out):.3f}" if counts.bad_left_out else ""
        shares = (
            f"{np.mean(counts.called[FLEET][name]):.3f} / {np.mean(counts.called[BOTH][name]):.3f}"
            for name in (HEALTHY, "1 %", "2 %", "tail 1 %", "rare tail 1 %")
        )
        rows.append([setting, *shares, dropped, f"{np.mean(counts.good_left_out):.4f}"])
    columns = ["setting", HEALTHY, "1 %", "2 %", "tail 1 %", "rare tail 1 %", "bad left out", "good left out"]
    trials = len(next(iter(others.values())).called[FLEET][HEALTHY])
    caption = f"Other fleets and references: against the fleet alone / with the past, {trials} nodes for each cell."
    figures.table(caption, columns, rows)
