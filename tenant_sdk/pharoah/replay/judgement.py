"""Which node computes wrong results: the digests of one saved step from several nodes of one class, compared.

A node whose repeats differ from each other, while another node's do not, computes wrong results now and then. Among
nodes that are steady, the ones that differ from most others are wrong. With two nodes that are steady and differ there
is no majority. Where no node is steady, an operator that varies everywhere can be the reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from pharoah.replay.results import NodeResult
from pharoah.replay.step_file import Computation, SavedStep


class ReplayState(StrEnum):
    """What the results of all nodes say together."""

    EQUAL = "equal"
    """All bits are equal."""
    WRONG_NODE = "wrong node"
    """Some nodes compute wrong results."""
    WRONG_ONCE = "wrong once"
    """The saved step was computed wrong, and nothing since."""
    THIRD_NODE_NEEDED = "third node needed"
    """Two nodes differ, and each is sure."""
    NOT_REPRODUCIBLE = "not reproducible"
    """No node computes the same twice: an operator varies everywhere, or this is the only node yet."""


@dataclass(frozen=True)
class Judgement:
    """What is known after some results."""

    state: ReplayState
    wrong: tuple[str, ...] = ()
    """The nodes, or GPUs of nodes, that compute wrong results."""
    operators: tuple[str, ...] = ()
    """For each of them the first operator whose result differs, as the glossary of torch writes it. Where a third node
    is needed, or no node computes the same twice, one more follows: the first one in which the results differ."""


def judge(step: SavedStep, results: Sequence[NodeResult]) -> Judgement:
    """Compare at least one result, each of another node or GPU, with each other and with the saved step."""
    computations = step.computations
    saved = [one.digest for one in computations]
    steady = {one.place: tuple(one.steady) for one in results if one.steady is not None}
    if not steady:
        first = _first_wrong(computations, results[0].outcomes[0].digests, results[0])
        return Judgement(ReplayState.NOT_REPRODUCIBLE, (), (first,))
    votes = Counter(steady.values())
    if step.node not in {one.node for one in results}:
        votes[tuple(saved)] += 1  # the step itself is what its node computed
    (right, most), *others = votes.most_common()
    if others and others[0][1] == most:
        unsteady = [one for one in results if one.steady is None]
        varying = [_first_difference(computations, *(kept.digests for kept in one.outcomes[:2])) for one in unsteady]
        first = _first_difference(computations, right, others[0][0])
        nodes = tuple(one.place for one in unsteady)
        return Judgement(ReplayState.THIRD_NODE_NEEDED, nodes, (*varying, first))
    wrong = [one for one in results if one.steady is None or tuple(one.steady) != right]
    if wrong:
        operators = [_first_wrong(computations, right, one) for one in wrong]
        return Judgement(ReplayState.WRONG_NODE, tuple(one.place for one in wrong), tuple(operators))
    if tuple(saved) != right:
        replayed = any(one.node == step.node for one in results)
        state = ReplayState.WRONG_ONCE if replayed else ReplayState.WRONG_NODE
        return Judgement(state, (step.node,), (_first_difference(computations, right, saved),))
    return Judgement(ReplayState.EQUAL)


def _first_wrong(computations: Sequence[Computation], right: Sequence[str], result: NodeResult) -> str:
    """The first operator of the most frequent wrong repeat."""
    digests = next((one.digests for one in result.outcomes if tuple(one.digests) != tuple(right)), [])
    return _first_difference(computations, right, digests)


def _first_difference(computations: Sequence[Computation], left: Sequence[str], right: Sequence[str]) -> str:
    for at, (mine, theirs) in enumerate(zip(left, right, strict=False)):
        if mine != theirs:
            return f"{computations[at].operator}, number {at + 1} of {len(computations)}"
    return ""
