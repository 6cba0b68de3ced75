"""What the ways of a dry run mean together: the parent's side of `pharoah.dryrun.exploration`.

A script that branches on a value which a dry run does not have is followed both ways. When all ways that make a
training step make the same step, the branches do not matter. When they make different steps, the answer is unknown
until the job runs, and the reason lists the ways.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from pharoah._errors import UnknownReason
from pharoah.dryrun.reports import ENDED, Decision, ReportKind, ReportLine
from pharoah.dryrun.result import DryRun

MAX_LISTED_WAYS = 4
MAX_SHOWN_CHARACTERS = 60
"""Characters of a source line in a reason."""
LATER_STEPS = "what later steps allocate"
"""What the memory of a first step lacks."""


def together(lines: Sequence[ReportLine], unread: str = "") -> DryRun | None:
    """The result of all ways; None when no way made a step. Raises UnknownReason when they make different steps.

    `unread` states why the report ends before the child has reported all; empty when it does not.
    """
    final = _results(lines, ReportKind.FINAL)
    found = final or _results(lines, ReportKind.PROVISIONAL)
    if not found:
        return None
    steps: dict[str, ReportLine] = {}
    for line, dry in found:
        steps.setdefault(dry.fingerprint.archetype, line)
    if len(steps) > 1:
        raise UnknownReason(_difference(steps.values()))
    branches = [line.decisions[-1] for line in lines if line.kind is ReportKind.BRANCH]
    unfollowed = len(branches) + 1 - len({line.decisions for line in lines if line.kind is not ReportKind.BRANCH})
    notes = [f"{branch}: both ways make the same step" for branch in dict.fromkeys(branches)]
    if unfollowed > 0 and branches:
        notes.append(f"{unfollowed} of {len(branches) + 1} ways took too long to follow")
    first = found[0][1]
    first = first._replace(assumptions=(*first.assumptions, *notes))
    return first if final else _limit_to_seen(first, lines, unread)


def _limit_to_seen(first: DryRun, lines: Iterable[ReportLine], unread: str) -> DryRun:
    """The result of a first step, with what has kept the dry run from the next one. A script that ends has no next."""
    reasons = [line.content for line in lines if line.kind is ReportKind.REASON] or [unread]
    failures = [reason for reason in reasons if reason not in ("", ENDED)]
    if not failures:
        return first
    noted = first._replace(assumptions=(*first.assumptions, f"only the first step was seen: {failures[0]}"))
    if first.fingerprint.serves:
        return noted
    # Before its first update a job has no optimizer state, so its memory is a lower bound.
    return noted._replace(cost=replace(first.cost, uncounted=(LATER_STEPS, *first.cost.uncounted)))


def _results(lines: Iterable[ReportLine], kind: ReportKind) -> list[tuple[ReportLine, DryRun]]:
    """The last result of each way."""
    last = {line.decisions: line for line in lines if line.kind is kind}
    return [(line, DryRun.from_json(line.content)) for line in last.values()]


def _difference(steps: Iterable[ReportLine]) -> str:
    """Why the answer is unknown: which decisions lead to which step."""
    ways = list(steps)
    shared = 0
    while all(len(way.decisions) > shared for way in ways) and len({way.decisions[shared] for way in ways}) == 1:
        shared += 1
    listed = []
    for way in ways[:MAX_LISTED_WAYS]:
        grammar = DryRun.from_json(way.content).fingerprint.grammar.replace("\n", " ")[:MAX_SHOWN_CHARACTERS]
        listed.append(f"{_conditions(way.decisions[shared:])}: {grammar}")
    more = f"; and {len(ways) - MAX_LISTED_WAYS} more" if len(ways) > MAX_LISTED_WAYS else ""
    return f"the step depends on values that a dry run does not have: {'; '.join(listed)}{more}"


def _conditions(decisions: Sequence[Decision]) -> str:
    """Decisions in words, as `train.py:42 is true`."""
    words = " and ".join(f"{decision.place} is {str(decision.holds).lower()}" for decision in decisions)
    return f"if {words}" if words else "else"
