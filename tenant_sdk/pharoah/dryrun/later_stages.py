"""Which stages of a pipeline are dry-run after the first, and what they add to its result: the parent's side."""

from __future__ import annotations

from collections.abc import Callable

from pharoah._errors import UnknownReason
from pharoah.cost.memory import peak
from pharoah.dryrun.result import DryRun, NextStage

MAX_STAGES = 4
"""Later stages that are dry-run: each takes as long as the first one."""


def with_later_stages(first: DryRun, attempt: Callable[[NextStage], DryRun]) -> DryRun:
    """The result of the first stage, with the cost of the stage that needs the most memory.

    `attempt` dry-runs one stage and raises UnknownReason. Stages in the middle are usually equal: after two equal ones
    in a row, the last one is next.
    """
    heaviest, notes, before, seen = (0, first), list[str](), first, 0
    while (stage := before.next_stage) and seen < MAX_STAGES:
        seen += 1
        try:
            found = attempt(stage)
        except UnknownReason as reason:
            notes.append(f"the stage of rank {stage.rank} is not known: {reason}")
            break
        if peak(found.cost.memory).bytes > peak(heaviest[1].cost.memory).bytes:
            heaviest = (stage.rank, found)
        if (following := found.next_stage) and _are_equal(before, found) and stage.rank < following.last_rank:
            found = found._replace(next_stage=following._replace(rank=following.last_rank))
        before = found
    if heaviest[0]:
        notes.append(f"the cost is that of rank {heaviest[0]}, the stage that needs the most memory")
    return first._replace(cost=heaviest[1].cost, assumptions=(*first.assumptions, *notes), next_stage=None)


def _are_equal(before: DryRun, found: DryRun) -> bool:
    """Whether two stages compute the same and send the same."""
    return (
        before.fingerprint.archetype == found.fingerprint.archetype
        and before.next_stage is not None
        and found.next_stage is not None
        and before.next_stage.mail == found.next_stage.mail
    )
