"""What the randomised blocks of a suspect say: it is confirmed, it blocks, it is refuted, or nothing is decided yet.

Each block is a pair: the suspected cell and its control, once each, on one node, in random order. How the pairs decide
is in `pair_decisions`, and how many of them are planned in `pair_plans`. All is a pure function of the
pairs in their order, so a campaign that was cancelled or restarted goes on with the pairs that it has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import numpy as np

from pharoah_learning.evidence import Trial
from pharoah_learning.models.confirmation import Evidence
from pharoah_learning.models.no_effect import MATTERING_ODDS_RATIO
from pharoah_learning.opinions import MIN_NODES
from pharoah_learning.pair_decisions import (
    MIN_BLOCKING_NODES,
    End,
    PathEnds,
    count_tolerated_nodes,
    first_ends,
)
from pharoah_learning.pair_plans import pairs_needed, plan_base_rate
from pharoah_learning.release import Suspect
from pharoah_protocol.vocabulary import Outcome
from pharoah_system.bounded_reading import parse_json


class Decision(StrEnum):
    """What is known of a suspect."""

    OPEN = "open"
    """More pairs are needed."""
    CONFIRMED = "confirmed"
    """Its failures have a cause; its row warns."""
    BLOCKS = "blocks"
    """It is certain enough to stop the jobs of tenants."""
    REFUTED = "refuted"
    """It has no effect that matters."""
    UNDECIDED = "undecided"
    """So many pairs have not decided it."""


_DECISIONS = {
    End.OPEN: Decision.OPEN,
    End.CONFIRMED: Decision.CONFIRMED,
    End.BLOCKS: Decision.BLOCKS,
    End.REFUTED: Decision.REFUTED,
    End.UNDECIDED: Decision.UNDECIDED,
}


@dataclass(frozen=True, kw_only=True)
class Pair:
    """One complete block of a suspect."""

    node: str
    suspected_failed: bool
    control_failed: bool


@dataclass(frozen=True, kw_only=True)
class Confirmation:
    """What the pairs of a suspect say."""

    decision: Decision = Decision.OPEN
    pairs: int = 0
    """Pairs until the decision."""
    most_pairs: int = 0
    """Pairs after which it is given up."""
    against: int = 0
    """Pairs in which only the suspected cell failed."""
    for_it: int = 0
    """Pairs in which only its control failed."""
    e_value: float = 1.0
    """The evidence that stays when the nodes are left out that speak most against the suspect: two of four or more, or
    else one."""
    nodes: tuple[str, ...] = ()
    """The nodes that each speak against the suspect so strongly that it fails on them, where all others leave it open
    or refute it: its failures belong to these nodes."""
    missing: str = ""
    """What a decision lacks, for people; empty where nothing is missing, or while pairs are still planned."""


NO_PAIRS = Confirmation()


class ControlRuns(NamedTuple):
    """How runs like those of a control have ended, on other nodes than the one that reports the failure."""

    failures: int
    runs: int


def plan_pairs(seen: ControlRuns, nodes: int) -> int:
    """The pairs after which a suspect with an effect that matters is nearly always confirmed, on so many nodes."""
    return pairs_needed(plan_base_rate(*seen), nodes)


def confirmation(pairs: Sequence[Pair], own_node: str, most_pairs: int) -> Confirmation:
    """What is decided after the first pairs that decide anything; later ones change nothing.

    `own_node`: the node that alone reported the failure. `most_pairs`: after these the suspect is given up.
    """
    pairs = pairs[:most_pairs]
    if not pairs:
        nothing_left = most_pairs == 0
        return Confirmation(
            decision=Decision.UNDECIDED if nothing_left else Decision.OPEN,
            most_pairs=most_pairs,
            missing="no pair could be completed (see `pharoah-provider campaign-works`)" if nothing_left else "",
        )
    names = sorted({pair.node for pair in pairs})
    own = names.index(own_node) if own_node in names else -1
    return _summary(pairs, names, _compute_ends(pairs, names, own, most_pairs), most_pairs)


def _compute_ends(pairs: Sequence[Pair], names: Sequence[str], own: int, most_pairs: int) -> PathEnds:
    return first_ends(
        np.array([names.index(pair.node) for pair in pairs]),
        np.array([[pair.suspected_failed for pair in pairs]]),
        np.array([[pair.control_failed for pair in pairs]]),
        own,
        most_pairs,
    )


def _summary(pairs: Sequence[Pair], names: Sequence[str], ended: PathEnds, most_pairs: int) -> Confirmation:
    decision, seen = _DECISIONS[End(ended.end[0])], pairs[: int(ended.pairs[0])]
    alone = () if decision in (Decision.CONFIRMED, Decision.BLOCKS) else _nodes_alone(seen, names, ended)
    total = _collect_evidence(seen)
    return Confirmation(
        decision=decision,
        pairs=len(seen),
        most_pairs=most_pairs,
        against=total.against,
        for_it=total.for_it,
        e_value=float(np.exp(ended.log_e[0])),
        nodes=alone,
        missing=_missing(decision, seen, alone),
    )


def _collect_evidence(pairs: Iterable[Pair]) -> Evidence:
    discordant = [pair.suspected_failed for pair in pairs if pair.suspected_failed != pair.control_failed]
    return Evidence(against=sum(discordant), for_it=len(discordant) - sum(discordant))


def _nodes_alone(pairs: Sequence[Pair], names: Sequence[str], ended: PathEnds) -> tuple[str, ...]:
    """The nodes on which the suspect fails for certain, where they are so few that they may be what is wrong."""
    found = tuple(name for name, failing in zip(names, ended.failing[0], strict=True) if failing)
    ran = Counter(pair.node for pair in pairs)
    return found if len(found) <= count_tolerated_nodes(np.array([ran[name] for name in names])) else ()


def _missing(decision: Decision, pairs: Sequence[Pair], alone: tuple[str, ...]) -> str:
    """What would decide more, where no more pairs are planned."""
    nodes = len({pair.node for pair in pairs})
    match decision:
        case Decision.OPEN | Decision.BLOCKS | Decision.REFUTED:
            return ""
        case Decision.CONFIRMED:
            few = f"it takes {MIN_BLOCKING_NODES} nodes to block, and {nodes} have run pairs"
            return few if nodes < MIN_BLOCKING_NODES else ""
        case Decision.UNDECIDED:
            return _missing_pairs(pairs, nodes, alone)


def _missing_pairs(pairs: Sequence[Pair], nodes: int, alone: tuple[str, ...]) -> str:
    if nodes < MIN_NODES:
        return f"pairs on another node: one node decides nothing, and {nodes} has run pairs"
    if alone:
        return f"it fails on {' and '.join(alone)} alone; see `pharoah-provider node-classes`"
    rate = round(plan_base_rate(sum(pair.control_failed for pair in pairs), len(pairs)), 3)
    needed = pairs_needed(rate, nodes)
    if needed > len(pairs):
        return f"pairs: {needed} in all would decide {MATTERING_ODDS_RATIO:g} times the odds where {rate:.1%} fail"
    return f"an effect: one of {MATTERING_ODDS_RATIO:g} times the odds would nearly always have been confirmed by now"


def control_of(suspect: Suspect, trials: Iterable[Trial]) -> str:
    """What the control of a suspect trains (workload and settings as JSON): a cell that differs from it in exactly one
    setting, and has always worked in its context, apart from the node that reports the failure. Of several it is one
    that has worked there as well, then the one with most trials. Empty when there is none."""
    workload, settings = parse_json(suspect.content, "suspect")
    worked: Counter[str] = Counter()
    failed: dict[bool, set[str]] = {True: set(), False: set()}
    for trial in trials:
        same_place = trial.context_id == suspect.context_id and trial.workload == workload
        if same_place and _differences(trial.settings, settings) == 1:
            if trial.outcome is Outcome.OK:
                worked[trial.content] += 1
            else:
                failed[trial.node == suspect.node].add(trial.content)
    usable = worked.keys() - failed[False]
    return min(usable, key=lambda content: (content in failed[True], -worked[content], content), default="")


def runs_like_control(suspect: Suspect, trials: Iterable[Trial]) -> ControlRuns:
    """How cells of its workload that could be its control have ended in its context, on other nodes. A control itself
    was chosen because it has never failed, so that it says too little."""
    workload, settings = parse_json(suspect.content, "suspect")
    ended = [
        trial.outcome is not Outcome.OK
        for trial in trials
        if trial.context_id == suspect.context_id
        and trial.node != suspect.node
        and trial.workload == workload
        and _differences(trial.settings, settings) == 1
    ]
    return ControlRuns(sum(ended), len(ended))


def _differences(one: dict[str, object], other: dict[str, object]) -> int:
    return sum(one.get(name) != other.get(name) for name in one.keys() | other.keys())
