"""How far the evidence of a row reaches: whose jobs it may warn or block (docs/adr/0070).

* A failure that has met a limit of its nodes reaches nodes with a limit at least as tight. A context names the limits
  of its nodes, so a row about a context reaches all of them where their limit is stated. Nodes of one device model have
  any limits: there is no such row. How much another size needs is arithmetic, so nothing beyond the rung `exact`.
* A rung leaves out some of what a job is: `minor` its sizes, `major` its settings as well. A row may warn where what is
  left out has varied among the failures, and nothing that has run there worked. Otherwise it informs, about other jobs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from pharoah_learning.known_trials import KnownTrial, Point, Setting
from pharoah_learning.limits import Limit, amount_of
from pharoah_learning.row_remedies import COMMON_DEFAULTS
from pharoah_protocol.vocabulary import Outcome, Rung, Scope, Severity

MIN_VALUES = 2
"""Settings, and sizes, over which failures must have occurred before a row speaks of others."""
_WORDS_OF_THE_COLLECTIVES = frozenset({"strategy", "ranks"})
"""Settings that the rung `collectives` names."""
_IN_EVERY_CONTEXT = frozenset({Limit.MEMORY, Limit.CORES})
"""Limits that were facts of contexts before trials kept their facts."""


class Reach(NamedTuple):
    """What may be said by the failures of a row."""

    widest: Severity | None
    """The strongest that may be said; None where nothing may be."""
    limit: Limit | None = None
    """The limit that the failures have met."""


def reach_of(scope: Scope, rung: Rung, treated: Sequence[KnownTrial], outcome: Outcome) -> Reach:
    """The reach of the trials of one rung in one group, of which two nodes agree on an outcome."""
    failing = [trial for trial in treated if trial.row.outcome is outcome]
    limit = _limit_of(scope, failing)
    if limit is not None:
        if scope is Scope.DEVICE:
            return Reach(None, limit)
        stated = all(_states(limit, trial) for trial in failing)
        return Reach(Severity.BLOCK if stated and rung is Rung.EXACT else Severity.INFO, limit)
    varied = rung is Rung.EXACT or _has_varied(rung, treated, failing)
    return Reach(Severity.BLOCK if varied else Severity.INFO)


def _limit_of(scope: Scope, failing: Iterable[KnownTrial]) -> Limit | None:
    """The limit that these failures have met: one that names a limit is enough to doubt the others."""
    met = sorted({limit for trial in failing if (limit := trial.failed_at) is not None})
    # A context names its cores, and what is slow there is slow beside other jobs of the same cores.
    slow = all(trial.row.outcome is Outcome.SLOW for trial in failing)
    return None if not met or (slow and scope is Scope.SERVER) else met[0]


def _states(limit: Limit, trial: KnownTrial) -> bool:
    """Whether the context of a trial says how much its nodes have."""
    if not trial.row.facts:
        return limit in _IN_EVERY_CONTEXT
    return amount_of(limit, trial.row.facts) is not None


def _has_varied(rung: Rung, treated: Iterable[KnownTrial], failing: Sequence[KnownTrial]) -> bool:
    """Whether the failures have occurred over what the rung leaves out, and nothing that ran there has only worked."""
    ends: dict[Point, set[Outcome]] = defaultdict(set)
    for trial in treated:
        ends[trial.point].add(trial.row.outcome)
    if any(outcomes == {Outcome.OK} for outcomes in ends.values()):
        return False
    points = {trial.point for trial in failing}
    sizes = {tuple(setting for setting in point.settings if _is_size(setting)) for point in points}
    if len(sizes) < MIN_VALUES:
        return False
    return rung in (Rung.MINOR, Rung.ONE_DEVICE) or _settings_varied(rung, points)


def _settings_varied(rung: Rung, points: Iterable[Point]) -> bool:
    """Whether no setting that these points state has the same value in all of them: it may be the cause."""
    named = _WORDS_OF_THE_COLLECTIVES if rung is Rung.COLLECTIVES else frozenset()
    words = [
        {setting.name: setting.value for setting in point.settings if _is_word(setting) and setting.name not in named}
        for point in points
    ]
    stated = {name for one in words for name in one}
    return bool(stated) and all(len({one.get(name) for one in words}) >= MIN_VALUES for name in stated)


def _is_size(setting: Setting) -> bool:
    """Sizes are numbers (`pharoah_benchmarks.settings`)."""
    return isinstance(setting.value, int) and setting.name not in _WORDS_OF_THE_COLLECTIVES


def _is_word(setting: Setting) -> bool:
    """Whether this is a choice that the point states, such as a dtype that is not the common one."""
    default = COMMON_DEFAULTS.get(setting.name)
    return not _is_size(setting) and setting.name not in ("device", "task") and setting.value != default
