"""What the randomised blocks of a suspect say: it is confirmed, it blocks, it is refuted, or nothing is decided yet.

Each block is a pair: the suspected cell and its control, once each, on one node, in random order. The evidence is the
e-process of `models.confirmation`. Evidence weighs by node (ADR 21): a decision must hold whichever one node is left
out, so that one bad node, or one malicious agent, decides nothing alone. The smallest of several e-values is at most
each of them, so that the rate of false confirmations stays below its bound. All is a pure function of the pairs in
their order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from pharoah_learning.evidence import Trial
from pharoah_learning.incompatible_pairs import LEAST_ODDS_RATIO
from pharoah_learning.models.confirmation import Evidence
from pharoah_learning.opinions import LEAST_NODES
from pharoah_learning.release import Suspect
from pharoah_protocol.vocabulary import Outcome
from pharoah_system.bounded_reading import parse_json

MOST_PAIRS = 60
"""Pairs after which a suspect is given up. Two nodes that always fail need 13 each to block; an odds ratio of 3 takes
23 discordant pairs in the median (`python -m evaluation learning --part confirmations`)."""
CLEAN_PAIRS = 14
"""So many pairs on other nodes without a failure refute a suspect: one that fails in a fifth of its runs has failed by
then with a probability of 95 % (0.8 ** 14 is 0.044)."""


class Decision(StrEnum):
    """What is known of a suspect."""

    OPEN = "open"
    """More pairs are needed."""
    CONFIRMED = "confirmed"
    """Its failures have a cause; its row warns."""
    BLOCKS = "blocks"
    """It is certain enough to stop the jobs of tenants."""
    REFUTED = "refuted"
    UNDECIDED = "undecided"
    """So many pairs have not decided it."""


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
    against: int = 0
    """Pairs in which only the suspected cell failed."""
    for_it: int = 0
    """Pairs in which only its control failed."""
    e_value: float = 1.0
    """The evidence that stays when the node is left out that speaks most against the suspect."""


NO_PAIRS = Confirmation()


def confirmation(pairs: Sequence[Pair], own_node: str, most_pairs: int = MOST_PAIRS) -> Confirmation:
    """What is decided after the first pairs that decide anything; later ones change nothing.

    `own_node`: the node that alone reported the failure.
    """
    confirmed = False
    for count in range(1, len(pairs) + 1):
        seen = pairs[:count]
        kept = _without_each_node(seen)
        confirmed = confirmed or all(evidence.confirms for evidence in kept)
        decision = Decision.OPEN
        if all(evidence.blocks for evidence in kept):
            decision = Decision.BLOCKS
        elif _is_refuted(seen, kept, own_node):
            decision = Decision.REFUTED
        elif confirmed and (_of(seen).for_it or count >= most_pairs):
            # A row that blocks is near only while every discordant pair speaks against the suspect.
            decision = Decision.CONFIRMED
        elif count >= most_pairs:
            decision = Decision.UNDECIDED
        if decision is not Decision.OPEN:
            return _summary(seen, kept, decision)
    return _summary(pairs, _without_each_node(pairs), Decision.OPEN)


def _summary(pairs: Sequence[Pair], kept: Sequence[Evidence], decision: Decision) -> Confirmation:
    total = _of(pairs)
    return Confirmation(
        decision=decision,
        pairs=len(pairs),
        against=total.against,
        for_it=total.for_it,
        e_value=min(evidence.e_value for evidence in kept),
    )


def _of(pairs: Iterable[Pair]) -> Evidence:
    discordant = [pair.suspected_failed for pair in pairs if pair.suspected_failed != pair.control_failed]
    return Evidence(against=sum(discordant), for_it=len(discordant) - sum(discordant))


def _without_each_node(pairs: Sequence[Pair]) -> list[Evidence]:
    """The evidence without each node in turn; without any pairs where there are fewer than two nodes."""
    nodes = sorted({pair.node for pair in pairs})
    if len(nodes) < LEAST_NODES:
        return [Evidence(against=0, for_it=0)]
    return [_of(pair for pair in pairs if pair.node != node) for node in nodes]


def _is_refuted(pairs: Sequence[Pair], kept: Sequence[Evidence], own_node: str) -> bool:
    others = [pair for pair in pairs if pair.node != own_node]
    clean = len(others) >= CLEAN_PAIRS and not any(pair.suspected_failed for pair in others)
    return clean or all(evidence.refutes(LEAST_ODDS_RATIO) for evidence in kept)


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


def _differences(one: dict[str, object], other: dict[str, object]) -> int:
    return sum(one.get(name) != other.get(name) for name in one.keys() | other.keys())
