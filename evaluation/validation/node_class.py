"""The class of a node from reruns, where the true class is known, beside simpler rules.

Everything is simulated. The failure rates are drawn from other distributions than those that the model assumes: uniform
ones, for which `Truth` has the ranges. There are as many nodes of each class, so that the mean of the four F1 scores
does not depend on how frequent the classes are taken to be.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from evaluation.figures import Figures
from evaluation.validation.simpler_rules import SIMPLER_RULES, RuleAnswer, RunAgain
from pharoah_learning.models.proportions import wilson
from pharoah_learning.node_class import MAX_RERUNS, Rerun, RerunWorkload, classify
from pharoah_protocol.vocabulary import NodeClass

NODES, QUICK_NODES = 500, 60
"""Nodes of each class."""
MIN_MACRO_F1 = 0.85
WORKLOADS = 4
BEST_SIMPLE = "majority of each workload, one failure excused"
MODEL, IN_TURN = "reruns that say most", "the same model, workloads in turn"


class Range(NamedTuple):
    """A uniform distribution of failure rates."""

    low: float
    high: float


class Truth(NamedTuple):
    """How simulated nodes fail. A node's own rate comes on top of the base rate."""

    base_rate: float = 0.01
    transient: Range = Range(0.1, 0.5)
    gray: Range = Range(0.6, 1.0)
    """Rates of the workloads that a gray node is wrong for."""
    gray_workloads: int = 1
    persistent: Range = Range(0.7, 1.0)
    known_base_runs: int = 0
    """Runs of each workload on other nodes whose outcomes the model is given."""


SETTINGS = {
    "as pinned": Truth(),
    "5 % of all runs fail anyway": Truth(base_rate=0.05),
    "the same, known from 200 runs elsewhere": Truth(base_rate=0.05, known_base_runs=200),
    "gray nodes fail in 30 to 70 % of the affected runs": Truth(gray=Range(0.3, 0.7)),
    "gray nodes are wrong for two of four workloads": Truth(gray_workloads=2),
    "transient nodes fail in 5 to 20 %": Truth(transient=Range(0.05, 0.2)),
}


@dataclass
class Answers:
    """What one method says about nodes of each class."""

    confusion: Counter[tuple[NodeClass, NodeClass]] = field(default_factory=Counter)
    """True class and class that was given, to the number of nodes."""
    reruns: list[int] = field(default_factory=list)
    right_workloads: list[bool] = field(default_factory=list)
    """For gray nodes that were recognised: whether exactly the affected workloads are named."""

    def f1(self, of: NodeClass) -> float:
        """Twice the nodes that are rightly in a class, over those that are in it and those that were put into it."""
        placed = sum(self.confusion[of, one] + self.confusion[one, of] for one in NodeClass)
        return 2 * self.confusion[of, of] / placed if placed else 0.0

    @property
    def macro_f1(self) -> float:
        return float(np.mean([self.f1(one) for one in NodeClass]))


class SimulatedNode(NamedTuple):
    """One node whose truth is known."""

    affected: tuple[int, ...]
    rates: tuple[float, ...]
    """How often each workload fails on it."""


def measure(figures: Figures, arguments: argparse.Namespace) -> None:
    """Measure all settings; bounds are for the pinned one."""
    rng = np.random.default_rng(arguments.seed)
    count = QUICK_NODES if arguments.quick else NODES
    found = {name: _answers(truth, count, rng) for name, truth in SETTINGS.items()}
    _add_figures(figures, found["as pinned"][MODEL])
    rows = [
        [setting, method, *_scores(answers)]
        for setting, methods in found.items()
        for method, answers in methods.items()
        if setting == "as pinned" or method in (MODEL, BEST_SIMPLE)
    ]
    columns = ["nodes", "rule", "macro F1", *(f"F1 {one}" for one in NodeClass), "reruns, mean"]
    figures.table(f"The class of {count} nodes of each class, after at most {MAX_RERUNS} reruns.", columns, rows)
    answers = found["as pinned"][MODEL]
    rows = [[str(true), *(str(answers.confusion[true, one]) for one in NodeClass)] for true in NodeClass]
    figures.table("What becomes of the nodes of each class, as pinned.", ["true class", *map(str, NodeClass)], rows)


def _add_figures(figures: Figures, answers: Answers) -> None:
    value = answers.macro_f1
    interval = f"{sum(answers.reruns) / len(answers.reruns):.1f} reruns, n={len(answers.reruns)}"
    figures.add("node_class_macro_f1", value, f">= {MIN_MACRO_F1}", value >= MIN_MACRO_F1, interval)
    for one in NodeClass:
        hits, count = answers.confusion[one, one], sum(answers.confusion[one, other] for other in NodeClass)
        low, high = wilson(hits, count)
        figures.add(f"{one}_recall", hits / count, interval=f"[{low:.3f}, {high:.3f}] n={count}")
    figures.ratio("gray_workloads_right_ratio", sum(answers.right_workloads), len(answers.right_workloads))


def _answers(truth: Truth, count: int, rng: np.random.Generator) -> dict[str, Answers]:
    found = {name: Answers() for name in (MODEL, IN_TURN, *SIMPLER_RULES)}
    for true in NodeClass:
        for _ in range(count):
            node = _drawn(truth, true, rng)
            workloads = _workloads(truth, rng)
            for name, in_turn in ((MODEL, False), (IN_TURN, True)):
                _classify(found[name], node, true, workloads, in_turn, rng)
            for name, rule in SIMPLER_RULES.items():
                _apply(found[name], rule, node, true, rng)
    return found


def _drawn(truth: Truth, true: NodeClass, rng: np.random.Generator) -> SimulatedNode:
    """A node of a class: its own failure rate, on all workloads, on some or on none."""
    ranges = {
        NodeClass.HEALTHY: Range(0.0, 0.0),
        NodeClass.TRANSIENT: truth.transient,
        NodeClass.GRAY: truth.gray,
        NodeClass.PERSISTENT: truth.persistent,
    }
    wrong = truth.gray_workloads if true is NodeClass.GRAY else WORKLOADS
    affected = tuple(sorted(rng.permutation(WORKLOADS)[:wrong].tolist()))
    own = rng.uniform(*ranges[true])
    rates = tuple(1 - (1 - truth.base_rate) * (1 - own * (at in affected)) for at in range(WORKLOADS))
    return SimulatedNode(affected, rates)


def _workloads(truth: Truth, rng: np.random.Generator) -> list[RerunWorkload]:
    runs = truth.known_base_runs
    return [
        RerunWorkload(name=str(at), base_failures=int(rng.binomial(runs, truth.base_rate)), base_runs=runs)
        for at in range(WORKLOADS)
    ]


def _classify(
    answers: Answers,
    node: SimulatedNode,
    true: NodeClass,
    workloads: list[RerunWorkload],
    in_turn: bool,
    rng: np.random.Generator,
) -> None:
    """Run again until the model ends; with `in_turn` it does not choose what."""
    reruns: list[Rerun] = []
    estimate = classify(workloads, reruns)
    while estimate.next_workload is not None:
        name = str(len(reruns) % WORKLOADS) if in_turn else estimate.next_workload
        reruns.append(Rerun(name, bool(rng.random() < node.rates[int(name)])))
        estimate = classify(workloads, reruns)
    answers.confusion[true, estimate.node_class] += 1
    answers.reruns.append(estimate.reruns)
    if true is NodeClass.GRAY is estimate.node_class:
        answers.right_workloads.append(estimate.wrong_for == tuple(map(str, node.affected)))


def _apply(
    answers: Answers,
    rule: Callable[[RunAgain, int], RuleAnswer],
    node: SimulatedNode,
    true: NodeClass,
    rng: np.random.Generator,
) -> None:
    """The first workload of a simpler rule is one that the node is wrong for: there the failure was seen."""
    order = [*node.affected, *(at for at in range(WORKLOADS) if at not in node.affected)]
    answer = rule(lambda at: bool(rng.random() < node.rates[order[at]]), WORKLOADS)
    answers.confusion[true, answer.node_class] += 1
    answers.reruns.append(answer.reruns)


def _scores(answers: Answers) -> list[str]:
    scores = [answers.macro_f1, *(answers.f1(one) for one in NodeClass)]
    return [*(f"{score:.3f}" for score in scores), f"{np.mean(answers.reruns):.1f}"]
