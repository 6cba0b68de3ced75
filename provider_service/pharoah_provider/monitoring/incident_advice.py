"""What an incident is about, what is likely behind it, and what a tenant can do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

from pharoah_benchmarks.micro import MICRO_BENCHMARKS
from pharoah_learning.models.cross_validation import Comparison, evidence
from pharoah_protocol.vocabulary import Resource
from pharoah_provider.domain import IncidentKind, Transition

AS_SLOW = 0.5
"""Copies need a processor as well. Where computing has become slower by at least this share of the slowdown of the
slowest benchmark, in logarithms, it is computing that is short."""
ANOTHER_NODE = "save a checkpoint and ask for another node"

WRONG_NUMBERS = "go back to a checkpoint from before this node was used, and ask for another node"


class Advice(NamedTuple):
    """Sentences for the tenant of a run."""

    likely: str
    action: str


_SLOW: Mapping[Resource | None, str] = {
    Resource.COMPUTE: "processor time of this node is taken by somebody else, or its clock is lower than before",
    Resource.MEMORY_BANDWIDTH: "something else on the machine moves much memory, or a memory channel is sick",
    Resource.MEMORY_CAPACITY: "memory of this node is taken or faulty",
    Resource.HOST_LINK: "the link between the host and a device is slower than before, or shared",
    Resource.NETWORK: "a link of this node is slower than before, or shared",
    Resource.STORAGE: "a disk of this node is slower than before, or shared",
    None: "something on this node is slower than it was beside the same job",
}


def slow_resource(shown: Mapping[str, Sequence[Comparison]]) -> Resource | None:
    """What is short, by the validations of one witness, a sequence for each benchmark; None where nothing is slow."""
    slow: dict[Resource, float] = {}
    for name, comparisons in shown.items():
        if name in MICRO_BENCHMARKS and evidence(comparisons) > 0:
            resource = MICRO_BENCHMARKS[name].resource
            slow[resource] = max(slow.get(resource, 0.0), fmean(one.slowdown for one in comparisons))
    if not slow:
        return None
    computing = [fmean(one.slowdown for one in shown[name]) for name in shown if _computes(name) and shown[name]]
    if max(computing, default=0.0) >= AS_SLOW * max(slow.values()):
        return Resource.COMPUTE
    return max(slow, key=lambda resource: slow[resource])


def advice(change: Transition) -> Advice:
    """What is likely behind an open incident, and what to do; empty once it is over."""
    if not change.state.is_open:
        return Advice("", "")
    match change.kind:
        case IncidentKind.SLOW:
            return Advice(_SLOW[change.resource], ANOTHER_NODE)
        case IncidentKind.LOST:
            return Advice("the node was lost, or cut off from the network", ANOTHER_NODE)
        case IncidentKind.BELOW_FLEET:
            return Advice(_SLOW[change.resource], ANOTHER_NODE)
        case IncidentKind.WRONG_ANSWER:
            return Advice("a core, a device or memory of this node computes wrong numbers", WRONG_NUMBERS)
        case IncidentKind.SHARED:
            return Advice("what these nodes have in common has failed or is overloaded", ANOTHER_NODE)
        case IncidentKind.AGENT_LOST:
            return Advice("the node is cut off from the network, or its agent has ended", "save a checkpoint soon")


def _computes(benchmark: str) -> bool:
    return benchmark in MICRO_BENCHMARKS and MICRO_BENCHMARKS[benchmark].resource is Resource.COMPUTE
