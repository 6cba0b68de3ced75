"""Rows about nodes that have too little of something: memory, processes, cores.

A cell that met a limit needs more than its node has. So it fails on all nodes of the device model that have at most as
much, in whatever context they are, and on nodes that have run nothing. The evidence of a context are the trials on
nodes that have as much as its own or more, up to the amount with which something worked. The controls are the same work
on nodes that have more, or those of any row (`known_trials`). What a node has is what it states (docs/adr/0070).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from pharoah_learning.context_rule import ContextRule
from pharoah_learning.evidence import Trial, on_their_device
from pharoah_learning.incompatibility import Compared, Group, learn_row
from pharoah_learning.known_trials import Controls, KnownTrial, Tokens
from pharoah_learning.limits import Limit, amount_of
from pharoah_learning.opinions import MIN_NODES
from pharoah_learning.release import LearnedRow, NodeKind
from pharoah_learning.row_remedies import remedy_of
from pharoah_protocol.vocabulary import Outcome, Rung, Scope


class _Job(NamedTuple):
    """One job on one device model."""

    device_id: str
    tokens: Tokens
    """Its tokens of the rung `exact`."""


class _Amounts(NamedTuple):
    """The trials of one job whose nodes state how much they have of one thing, and those of other nodes."""

    limit: Limit
    stated: dict[int, list[KnownTrial]]
    """Amount to the trials on nodes that have so much."""
    others: list[KnownTrial]
    """On nodes that state no such limit."""


def learn_limit_rows(trials: Sequence[Trial], fleet: Iterable[NodeKind], rule: ContextRule) -> list[LearnedRow]:
    """The rows about contexts whose nodes state a limit that jobs have met: those of the trials, and of the fleet.

    The fingerprints of the trials must be readable (`usable_trials`), and their contexts those of the rule.
    """
    known = [KnownTrial.from_trial(trial) for trial in on_their_device(trials) if trial.facts]
    controls = Controls(known)
    contexts = {NodeKind(one.row.device_id, one.row.facts) for one in known} | set(fleet)
    of_device: dict[str, list[NodeKind]] = defaultdict(list)
    for kind in sorted(contexts):
        of_device[kind.device_id].append(kind)
    found: dict[str, LearnedRow] = {}
    for job, own in sorted(_jobs(known).items()):
        for amounts in _by_limit(own):
            least: dict[int, set[str]] = defaultdict(set)
            for kind in of_device[job.device_id]:
                if (amount := amount_of(amounts.limit, kind.facts)) is not None:
                    least[amount].add(rule.context_of(kind.facts))
            for amount, names in sorted(least.items()):
                for row in _rows(job, amounts, amount, sorted(names), controls):
                    found.setdefault(row.id, row)
    return list(found.values())


def strongest(rows: Iterable[LearnedRow]) -> list[LearnedRow]:
    """The row that says most, of several about the same, at the place of the first."""
    found: dict[str, LearnedRow] = {}
    for row in rows:
        if row.id not in found or row.severity.strength > found[row.id].severity.strength:
            found[row.id] = row
    return list(found.values())


def _jobs(known: Iterable[KnownTrial]) -> dict[_Job, list[KnownTrial]]:
    found: dict[_Job, list[KnownTrial]] = defaultdict(list)
    for trial in known:
        found[_Job(trial.row.device_id, trial.tokens[Rung.EXACT])].append(trial)
    return found


def _by_limit(own: Sequence[KnownTrial]) -> Iterator[_Amounts]:
    """The limits that the trials of a job have met."""
    for limit in sorted({met for trial in own if (met := trial.failed_at) is not None}):
        stated: dict[int, list[KnownTrial]] = defaultdict(list)
        others = []
        for trial in own:
            amount = amount_of(limit, trial.row.facts)
            if amount is None:
                others.append(trial)
            else:
                stated[amount].append(trial)
        yield _Amounts(limit, dict(stated), others)


def _rows(job: _Job, amounts: _Amounts, amount: int, contexts: Sequence[str], index: Controls) -> Iterator[LearnedRow]:
    """The rows of contexts whose nodes have this amount: about all sizes of the class, or about those from one on from
    which none has worked with it."""
    sizes = sorted({trial.size for found in amounts.stated.values() for trial in found})
    for size in sizes:
        evidence = _evidence(amounts, amount, size)
        outcome = _find_agreed_outcome([trial.row for trial in evidence.treated])
        if outcome is None:
            continue
        usual = index.find_controls(Scope.DEVICE, evidence.treated)
        compared = [Compared.from_trials(outcome, evidence.treated, controls) for controls in (evidence.richer, usual)]
        clearest = max(compared, key=lambda one: one.severity(Rung.EXACT).strength)
        severity, remedy = clearest.severity(Rung.EXACT), remedy_of(Scope.DEVICE, evidence.treated, usual, outcome)
        for context in contexts:
            group = Group(Scope.SERVER, context, Rung.EXACT, job.tokens, evidence.treated)
            yield learn_row(group, severity, outcome, clearest.counts, remedy, amounts.limit)
        return


class _Evidence(NamedTuple):
    """What shows how it goes with one amount."""

    treated: list[KnownTrial]
    """On nodes that have as much or more, up to the first amount with which not all of them met the limit."""
    richer: list[KnownTrial]
    """The same work on nodes that have more than these."""


def _evidence(amounts: _Amounts, amount: int, size: int) -> _Evidence:
    """The evidence among the trials from one position in their size classes on."""
    treated, most = list[KnownTrial](), amount
    for more, found in sorted(amounts.stated.items()):
        large = [trial for trial in found if trial.size >= size]
        if more < amount or not large:
            continue
        if any(trial.failed_at is not amounts.limit for trial in large):
            break
        treated += large
        most = more
    richer = [trial for more, found in amounts.stated.items() if more > most for trial in found]
    # A node that states no limit may have one: that it had too little refutes nothing.
    richer += [trial for trial in amounts.others if trial.failed_at is not amounts.limit]
    return _Evidence(treated, richer)


def _find_agreed_outcome(treated: Sequence[Trial]) -> Outcome | None:
    """How all of these trials ended, if two nodes have run them and none worked."""
    outcomes, nodes = {trial.outcome for trial in treated}, {trial.node for trial in treated}
    return outcomes.pop() if len(outcomes) == 1 and len(nodes) >= MIN_NODES else None
