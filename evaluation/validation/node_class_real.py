"""The class of real nodes from real cells: what is run again is training, in the fork server of an agent.

A node is a process with the limits of a node. A gray one has so little memory that one of the four workloads does not
fit. On a persistent one none fits. On a transient one, the first layer gives NaN in a drawn quarter of the reruns (the
fault `nan`); that the fault comes and goes is drawn, what it does is real. A rerun fails when its outcome is not `ok`.
"""

from __future__ import annotations

import argparse
import asyncio
import os
from collections import Counter
from typing import Any, NamedTuple

import numpy as np

from evaluation.figures import Figures
from pharoah_benchmarks.campaign.cell import Cell, CellResult, Degradation
from pharoah_learning.node_class import NodeClassEstimate, Rerun, RerunWorkload, classify
from pharoah_protocol.node_profile import NodeProfile
from pharoah_protocol.vocabulary import NodeClass, Outcome
from pharoah_provider.agent.child_processes import Child

NODES, QUICK_NODES = 5, 1
"""Nodes of each class."""
STEPS = 3
LIMIT_SECONDS = 60.0
LARGE = "gpt"
WORKLOADS: dict[str, dict[str, Any]] = {
    LARGE: {"attention": "math", "length": 1024, "batch": 2},
    "convnet": {"batch": 8},
    "mlp": {},
    "recommender": {},
}
"""Settings of each workload. Attention that is computed as matrix products takes several hundred megabytes here."""
TRANSIENT_RATE = 0.25
_NAN = Degradation(fault="nan", dose=0.01, onset_seconds=0.0)


class RealNode(NamedTuple):
    """What is wrong with a node."""

    memory_limit_bytes: int = 0
    """Beyond what an idle process has; 0 is no limit."""
    nan_rate: float = 0.0


REAL_NODES = {
    NodeClass.HEALTHY: RealNode(),
    NodeClass.TRANSIENT: RealNode(nan_rate=TRANSIENT_RATE),
    NodeClass.GRAY: RealNode(memory_limit_bytes=300 << 20),
    NodeClass.PERSISTENT: RealNode(memory_limit_bytes=40 << 20),
}


class Classed(NamedTuple):
    """One node, what the reruns said, and what they were."""

    true: NodeClass
    estimate: NodeClassEstimate
    outcomes: Counter[str]


def measure(figures: Figures, arguments: argparse.Namespace) -> None:
    """Run all nodes, and count the right classes."""
    rng = np.random.default_rng(arguments.seed)
    classed = asyncio.run(_all(QUICK_NODES if arguments.quick else NODES, rng))
    right = [one.true is one.estimate.node_class for one in classed]
    figures.ratio("real_nodes_right_ratio", sum(right), len(right))
    gray = [one for one in classed if one.true is NodeClass.GRAY]
    named = sum(one.estimate.node_class is NodeClass.GRAY and one.estimate.wrong_for == (LARGE,) for one in gray)
    figures.ratio("real_gray_workload_right_ratio", named, len(gray), bound=1.0)
    rows = [
        [
            str(one.true),
            str(one.estimate.node_class),
            f"{one.estimate.posterior[one.estimate.node_class]:.3f}",
            str(one.estimate.reruns),
            ", ".join(one.estimate.wrong_for),
            ", ".join(f"{what} {count}" for what, count in sorted(one.outcomes.items())),
        ]
        for one in classed
    ]
    columns = ["true class", "class", "posterior", "reruns", "wrong for", "outcomes of cells"]
    figures.table("Real cells: each node, its class, and what became of its reruns.", columns, rows)


async def _all(count: int, rng: np.random.Generator) -> list[Classed]:
    profile = NodeProfile(cpus=(min(os.sched_getaffinity(0)),), threads=1)
    classed = []
    for true, node in REAL_NODES.items():
        limit = str(node.memory_limit_bytes)
        async with Child("pharoah_benchmarks.campaign.fork_server", profile, limit, limit_memory=False) as fork_server:
            classed += [await _class_of(fork_server, true, node, rng) for _ in range(count)]
    return classed


async def _class_of(fork_server: Child, true: NodeClass, node: RealNode, rng: np.random.Generator) -> Classed:
    """Run again what says most, until the class is certain or enough was run."""
    workloads = [RerunWorkload(name=name) for name in WORKLOADS]
    reruns: list[Rerun] = []
    outcomes: Counter[str] = Counter()
    estimate = classify(workloads, reruns)
    while estimate.next_workload is not None:
        name, seed = estimate.next_workload, int(rng.integers(1 << 30))
        fault = _NAN if rng.random() < node.nan_rate else None
        cell = Cell(name, name, WORKLOADS[name], STEPS, seed, limit_seconds=LIMIT_SECONDS, degradation=fault)
        result = CellResult.from_json(await fork_server.ask(cell.to_json(), 4 * LIMIT_SECONDS))
        failed = result.outcome is not Outcome.OK
        outcomes[f"{name} {result.outcome}"] += 1
        reruns.append(Rerun(name, failed))
        estimate = classify(workloads, reruns)
    return Classed(true, estimate, outcomes)
