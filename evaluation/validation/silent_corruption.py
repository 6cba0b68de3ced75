"""A bit flipped in products on one node: whether a replayed step of a job, or a micro-benchmark, names that node.

A node is a process of this machine. On one of three the kernels of matrix products go wrong
(`evaluation/scripts/wrong_products.py`); jobs, saved steps, replays, micro-benchmarks and their comparisons are real.
The job runs on the faulty node, or on a healthy one beside it. A fault is found when the faulty node is named and no
other one. Programs that run at the same time have a core each, as nodes have.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple

from evaluation.figures import Figures
from evaluation.loop.side_by_side import Stop, side_by_side
from evaluation.loop.watched_jobs import result_of
from evaluation.pages import ROOT
from pharoah_benchmarks.micro import MICRO_BENCHMARKS, Answer, MeasureOrder
from pharoah_learning.deviating_answers import NodeDigest, deviations

SCRIPTS = ROOT / "evaluation" / "scripts"
WORKLOADS, QUICK_WORKLOADS = ("mlp", "gpt", "recommender"), ("mlp",)
NODES = (platform.node(), "n2", "n3")
"""A saved step names its node by the name of the machine, so the job's node has that name in replays as well. With
another name, the step would count as what a fourth node has computed."""
JOB_NODE, OTHER_NODE = NODES[0], NODES[1]
STEPS = 8
REPLAY_SECONDS = 30.0
"""On the faulty node: the default of `pharoah replay`."""
HEALTHY_SECONDS = 2.0
"""On the others: a node that is always right shows no more in a longer time."""
BENCHMARK = "reproducibility"


class WrongProducts(NamedTuple):
    """What is wrong with the faulty node: which bits, in which share of the products."""

    kind: str
    rate: float


HEALTHY = WrongProducts("random", 0.0)
FAULTS = (
    WrongProducts("random", 1.0),
    WrongProducts("random", 1e-2),
    WrongProducts("random", 1e-3),
    WrongProducts("small", 1e-2),
    WrongProducts("stuck", 1.0),
    WrongProducts("certain", 0.05),
)
QUICK_FAULTS = FAULTS[1:2]
JOB_FAILED = "the job failed"
RARE = (WrongProducts("random", 1e-4), WrongProducts("random", 1e-5))
"""Printed to show where thirty seconds end: a replay makes some thousand products in that time. They are not in the
ratio."""


class Episode(NamedTuple):
    """One step, computed by three nodes."""

    workload: str
    fault: WrongProducts
    faulty: str
    named: tuple[str, ...]
    state: str
    repeats: int
    """How often the faulty node has computed the step."""

    @property
    def found(self) -> bool:
        return self.named == (self.faulty,)

    @property
    def replayed(self) -> bool:
        return self.state != JOB_FAILED


def measure(figures: Figures, arguments: argparse.Namespace) -> None:
    """Run all episodes, and count the faults that were found by replay, by the micro-benchmark, and by either."""
    workloads = QUICK_WORKLOADS if arguments.quick else WORKLOADS
    faults = QUICK_FAULTS if arguments.quick else FAULTS + RARE
    with tempfile.TemporaryDirectory() as folder:  # first, because it takes little time and may fail
        bench = Bench(Path(folder), random.Random(arguments.seed), Stop())
        healthy = [bench.benchmark(HEALTHY) for _ in NODES[1:]]
        by_benchmark = {fault: _is_wrong(bench.benchmark(fault), healthy) for fault in faults}
    all_cores, cores = sorted(os.sched_getaffinity(0)), SimpleQueue[int]()
    for core in all_cores:
        cores.put(core)

    def work(workload: str, stop: Stop) -> list[Episode]:
        with _own_core(cores):
            return _episodes(workload, faults, arguments.seed, stop)

    of_workloads = side_by_side(work, workloads, len(all_cores))
    _report(figures, [one for of_workload in of_workloads for one in of_workload], by_benchmark)


@contextmanager
def _own_core(cores: SimpleQueue[int]) -> Iterator[None]:
    """What this thread starts inside runs on one core that no other has: threads of two programs that share cores wait
    for each other, so that a step takes ten times as long."""
    core, before = cores.get(), os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})  # of this thread, and of the programs that it starts
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
        cores.put(core)


def _episodes(workload: str, faults: Sequence[WrongProducts], seed: int, stop: Stop) -> list[Episode]:
    """All episodes of one workload: a healthy one, and each fault on the node of the job and on another node."""
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder), random.Random(f"{seed} {workload}"), stop)
        bench.save_step(workload, HEALTHY)
        found = [bench.episode(workload, HEALTHY, "")]
        found += [bench.episode(workload, fault, OTHER_NODE) for fault in faults]
        for fault in faults:
            if bench.save_step(workload, fault):
                found.append(bench.episode(workload, fault, JOB_NODE))
            else:
                found.append(Episode(workload, fault, JOB_NODE, (), JOB_FAILED, 0))
    return found


def _report(figures: Figures, episodes: Sequence[Episode], by_benchmark: Mapping[WrongProducts, bool]) -> None:
    replayed = [one for one in episodes if one.replayed]
    counted = [one for one in replayed if one.faulty and one.fault not in RARE]
    either = sum(one.found or by_benchmark[one.fault] for one in counted)
    figures.ratio("silent_corruption_found_ratio", either, len(counted), bound=0.95)
    figures.add("jobs_that_failed", len(episodes) - len(replayed), interval="not silent, not counted")
    figures.ratio("found_by_replay_ratio", sum(one.found for one in counted), len(counted))
    once = [found for fault, found in by_benchmark.items() if fault not in RARE]  # it runs once for each fault
    figures.ratio("found_by_benchmark_ratio", sum(once), len(once))
    wrong = sum(bool(set(one.named) - {one.faulty}) for one in replayed)
    figures.add("healthy_nodes_named_wrong", wrong, "0", wrong == 0, f"n={len(replayed)}")
    rows = []
    for fault in by_benchmark:
        mine = [one for one in episodes if one.fault == fault and one.replayed]
        at = {node: [one for one in mine if one.faulty == node] for node in (JOB_NODE, OTHER_NODE)}
        rows.append(
            [
                fault.kind,
                f"{fault.rate:g}",
                *(f"{sum(one.found for one in at[node])} of {len(at[node])}" for node in (JOB_NODE, OTHER_NODE)),
                "yes" if by_benchmark[fault] else "no",
                f"{min(one.repeats for one in mine)} to {max(one.repeats for one in mine)}",
            ]
        )
    columns = ["bits", "share of products", "job on faulty node", "job elsewhere", f"`{BENCHMARK}`", "repeats"]
    figures.table(
        f"Faulty nodes that were found by a replay of {REPLAY_SECONDS:g} s on this node, and by one run of the "
        "micro-benchmark; the last two rows are not counted in the ratio.",
        columns,
        rows,
    )
    figures.details["episodes"] = [one._asdict() for one in episodes]


class Bench:
    """Runs programs on nodes, and keeps what healthy nodes have computed of the newest step. All methods raise Stopped
    when nothing is to go on."""

    def __init__(self, folder: Path, chance: random.Random, stop: Stop) -> None:
        self._folder, self._chance, self._stop = folder, chance, stop
        self._step = folder / "step"

    def save_step(self, workload: str, fault: WrongProducts) -> bool:
        """Run a job that saves a step, on a node with this fault. Whether it came that far: a bit of an exponent may
        end in a loss that is no number, and then the job ends by itself. Raises RuntimeError for any other end."""
        script = [str(SCRIPTS / "train_workload.py"), workload, "--steps", str(STEPS)]
        job = [sys.executable, *self._on(fault), *script]
        self._step.unlink(missing_ok=True)
        run = [sys.executable, "-m", "pharoah", "run", "--step-file", str(self._step), "--", *job]
        done = self._stop.run(run, folder=self._folder)
        for path in self._folder.glob("*.result"):
            path.unlink()
        saved = self._step.exists()
        _require_silent(f"{workload} with {fault}", done.returncode, done.stdout, done.stderr, saved)
        return saved

    def episode(self, workload: str, fault: WrongProducts, faulty: str) -> Episode:
        """Replay the step on all nodes. Results of healthy nodes stay for the next episode with this step."""
        (self._folder / f"{faulty}.result").unlink(missing_ok=True)
        others = [node for node in NODES if node != faulty]
        last = faulty or others.pop()
        for node in others:
            if not self._result(node).exists():
                self._replay(node, HEALTHY)
        judged = self._replay(last, fault, "--with", *(str(self._result(node)) for node in others))
        outcomes = json.loads(self._result(last).read_text())["results"][0]["outcomes"]
        named = tuple(judged["wrong"])
        if faulty:
            self._result(last).unlink()
        return Episode(workload, fault, faulty, named, judged["state"], sum(repeats for _, repeats in outcomes))

    def benchmark(self, fault: WrongProducts) -> Answer:
        """One run of the micro-benchmark, as an idle check orders it."""
        entry = MICRO_BENCHMARKS[BENCHMARK]
        order = MeasureOrder(benchmark=BENCHMARK, repeats=entry.repeats, limit_seconds=entry.limit_seconds)
        command = [sys.executable, *self._on(fault), "-m", "pharoah_benchmarks.micro"]
        done = self._stop.run(command, order.to_json())
        if done.returncode != 0:
            raise RuntimeError(f"{BENCHMARK} with {fault} ended with {done.returncode}: {done.stderr}")
        return Answer.from_json(done.stdout)

    def _replay(self, node: str, fault: WrongProducts, *others: str) -> dict[str, Any]:
        command = [sys.executable, *self._on(fault), "-m", "pharoah", "replay", str(self._step), "--node", node]
        seconds = REPLAY_SECONDS if fault.rate else HEALTHY_SECONDS
        command += ["--seconds", str(seconds), "--out", str(self._result(node)), "--output", "json", *others]
        done = self._stop.run(command)
        if done.returncode not in (0, 13):  # 13: some results differ
            raise RuntimeError(f"{node}: {done.stderr}")
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def _result(self, node: str) -> Path:
        return self._folder / f"{node}.result"

    def _on(self, fault: WrongProducts) -> list[str]:
        seed = str(self._chance.randrange(1 << 31))
        return [str(SCRIPTS / "wrong_products.py"), seed, fault.kind, str(fault.rate), "--"]


def _require_silent(what: str, code: int, output: str, errors: str, saved: bool) -> None:
    """Raises RuntimeError for a job that ended with an error, or without a step although its loss was a number."""
    outcome = result_of(output).get("outcome", "none")
    if code != 0 or not (saved or outcome == "nan"):
        raise RuntimeError(f"{what} ended with {code}, its outcome is {outcome}: {errors}")


def _is_wrong(answer: Answer, healthy: Sequence[Answer]) -> bool:
    """Whether the node itself notices, or its digest differs from those of two healthy nodes. Raises RuntimeError for
    an answer that says neither, and for a healthy node that is wrong: no fault is found by them."""
    for one in (answer, *healthy):
        if one.error or one.correct is None:
            raise RuntimeError(f"{BENCHMARK} has no answer: {one.error or 'it does not check what it computes'}")
    if not all(one.correct for one in healthy):
        raise RuntimeError(f"{BENCHMARK} is wrong on a healthy node")
    if not answer.correct:
        return True
    answers = dict(zip(NODES, (answer, *healthy), strict=True))
    found = deviations(NodeDigest(node, "class", BENCHMARK, one.digest) for node, one in answers.items())
    return any(one.node == JOB_NODE for one in found)
