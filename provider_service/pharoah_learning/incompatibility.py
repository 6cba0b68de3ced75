"""The incompatibility table: which jobs fail in which contexts, by counting, with matched controls.

Small-numbers rule: a row blocks only with at least 5 of 5 failures of one kind and at least 20 matched controls without
one. A control is a trial of the same workload that differs in exactly one thing: one software setting (any context)
or the context (same settings). Failures of memory never reach beyond the exact rung: whether another size fits
is arithmetic, not statistics. Only trials that ran on the device of their context count.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from statistics import median
from typing import NamedTuple

from pharoah_archetypes import RUNGS, Fingerprint, rung_tokens
from pharoah_learning.evidence import Trial, on_their_device
from pharoah_learning.release import LearnedRow
from pharoah_protocol.vocabulary import Outcome, Rung, Scope, Severity

BLOCK_FAILURES = 5
BLOCK_CONTROLS = 20
SLOW_RATIO = 1.5
"""A job is slow when its steps take this many times as long as in other contexts, beyond what the context does to all
jobs."""

Tokens = tuple[str, ...]


class _Remedy(IntEnum):
    """The codes of `remedies.toml` that learning gives."""

    NONE = 0
    FUSED_ATTENTION = 1
    FLOAT32 = 2
    WIDER_DTYPE = 3
    SMALLER_BATCH = 4
    OTHER_CONTEXT = 5
    OTHER_OPTIMIZER = 6
    SUPPORTED_DTYPE = 7


_REMEDY_OF_SETTING = {
    "attention": _Remedy.FUSED_ATTENTION,
    "length": _Remedy.SMALLER_BATCH,
    "batch": _Remedy.SMALLER_BATCH,
    "width": _Remedy.SMALLER_BATCH,
    "depth": _Remedy.SMALLER_BATCH,
    "optimizer": _Remedy.OTHER_OPTIMIZER,
}
_REMEDY_OF_DTYPE = {
    Outcome.NAN: _Remedy.WIDER_DTYPE,
    Outcome.SLOW: _Remedy.FLOAT32,
    Outcome.ERROR: _Remedy.SUPPORTED_DTYPE,
}


@dataclass(frozen=True)
class _Known:
    """A trial with the tokens of its rungs."""

    row: Trial
    tokens: dict[Rung, Tokens]

    @property
    def settings(self) -> tuple[tuple[str, object], ...]:
        return tuple(sorted(self.row.settings.items()))

    def group(self, scope: Scope) -> str:
        """The context or the device model, as the scope asks for."""
        return self.row.context_id if scope is Scope.SERVER else self.row.device_id


class _Counts(NamedTuple):
    """Failures of one kind among the trials of a row, and among their controls."""

    failures: int
    runs: int
    base_failures: int
    base_runs: int


def learn_incompatibilities(trials: Iterable[Trial]) -> list[LearnedRow]:
    """Rows for every rung, server configuration and device model that was tried on its own device."""
    known = [_with_tokens(trial) for trial in mark_slow(on_their_device(trials))]
    rows: list[LearnedRow] = []
    for scope in (Scope.SERVER, Scope.DEVICE):
        for rung in RUNGS:
            groups: dict[tuple[str, Tokens], list[_Known]] = defaultdict(list)
            for trial in known:
                groups[trial.group(scope), trial.tokens[rung]].append(trial)
            rows += [
                _row(scope, group_id, rung, tokens, treated, known)
                for (group_id, tokens), treated in sorted(groups.items())
            ]
    return rows


def mark_slow(trials: Sequence[Trial]) -> list[Trial]:
    """Trials that finished, but much slower here than elsewhere, get the outcome `slow`.

    A context that slows all workloads by the same factor is not an incompatibility: each workload's ratio is taken
    relative to the median ratio of its context.
    """
    ratios = _step_ratios(trials)
    general = {context: max(1.0, median(r for (_, c), r in ratios.items() if c == context)) for _, context in ratios}
    return [
        replace(trial, outcome=Outcome.SLOW)
        if trial.outcome is Outcome.OK
        and ratios.get((_point(trial), trial.context_id), 0) > SLOW_RATIO * general.get(trial.context_id, 1.0)
        else trial
        for trial in trials
    ]


def _step_ratios(trials: Sequence[Trial]) -> dict[tuple[tuple[object, ...], str], float]:
    """Per workload with its settings and context: its step time over that in the other contexts."""
    steps: dict[tuple[object, ...], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for trial in trials:
        if trial.outcome is Outcome.OK and len(trial.step_seconds) > 1:
            steps[_point(trial)][trial.context_id].append(median(trial.step_seconds[1:]))
    ratios: dict[tuple[tuple[object, ...], str], float] = {}
    for point, by_context in steps.items():
        for context, seconds in by_context.items():
            elsewhere = [median(s) for c, s in by_context.items() if c != context]
            if elsewhere:
                ratios[point, context] = median(seconds) / median(elsewhere)
    return ratios


def _point(trial: Trial) -> tuple[object, ...]:
    return (trial.workload, *sorted(trial.settings.items(), key=str))


def _with_tokens(trial: Trial) -> _Known:
    fingerprint = Fingerprint.from_json(trial.fingerprint)
    return _Known(trial, {rung: rung_tokens(fingerprint, rung) for rung in RUNGS})


def _row(
    scope: Scope, group_id: str, rung: Rung, tokens: Tokens, treated: list[_Known], known: Iterable[_Known]
) -> LearnedRow:
    outcomes = Counter(trial.row.outcome for trial in treated if trial.row.outcome is not Outcome.OK)
    outcome, failures = outcomes.most_common(1)[0] if outcomes else (Outcome.OK, 0)
    controls = _controls(scope, treated, known)
    counts = _counted(outcome, failures, treated, controls)
    severity = _severity(rung, outcome, counts)
    if severity is not Severity.BLOCK and counts.base_failures and rung is not Rung.MAJOR:
        # It may fail in every context: then only settings can be the contrast.
        other_settings = [t for t in controls if t.settings not in {x.settings for x in treated}]
        stricter = _counted(outcome, failures, treated, other_settings)
        if _severity(rung, outcome, stricter) is Severity.BLOCK:
            severity, controls, counts = Severity.BLOCK, other_settings, stricter
    return LearnedRow(
        scope=scope,
        group_id=group_id,
        rung=rung,
        tokens=tokens,
        severity=severity,
        outcome=outcome,
        **counts._asdict(),
        remedy=int(_remedy(treated, controls, outcome) if severity is not Severity.OK else _Remedy.NONE),
        title=_title(treated),
    )


def _counted(outcome: Outcome, failures: int, treated: list[_Known], controls: list[_Known]) -> _Counts:
    base_failures = sum(trial.row.outcome is outcome for trial in controls) if failures else 0
    return _Counts(failures, len(treated), base_failures, len(controls))


def _severity(rung: Rung, outcome: Outcome, counts: _Counts) -> Severity:
    if not counts.failures:
        return Severity.OK
    if outcome in (Outcome.SLOW, Outcome.TIMEOUT) or rung is Rung.MAJOR:
        return Severity.WARN
    if outcome is Outcome.MEMORY and rung is not Rung.EXACT:
        return Severity.WARN
    always = counts.failures == counts.runs >= BLOCK_FAILURES
    never_without = counts.base_failures == 0 and counts.base_runs >= BLOCK_CONTROLS
    return Severity.BLOCK if always and never_without else Severity.WARN


def _controls(scope: Scope, treated: list[_Known], known: Iterable[_Known]) -> list[_Known]:
    """Trials that differ from a treated one in one setting, or in the context alone."""
    own = {id(trial) for trial in treated}
    here = {trial.group(scope) for trial in treated}
    points = {(trial.row.workload, trial.settings) for trial in treated}

    def differs_in_one_thing(trial: _Known, settings: tuple[tuple[str, object], ...]) -> bool:
        elsewhere = trial.settings == settings and trial.group(scope) not in here
        return elsewhere or _differing(trial.settings, settings) == 1

    return [
        trial
        for trial in known
        if id(trial) not in own
        and any(
            trial.row.workload == workload and differs_in_one_thing(trial, settings) for workload, settings in points
        )
    ]


def _differing(left: tuple[tuple[str, object], ...], right: tuple[tuple[str, object], ...]) -> int:
    """In how many settings two trials differ; an absent setting is the workload's default, which is a value too."""
    a, b = dict(left), dict(right)
    return sum(a.get(key) != b.get(key) for key in a.keys() | b.keys())


def _remedy(treated: list[_Known], controls: list[_Known], outcome: Outcome) -> _Remedy:
    """The one change that made it work: a setting in this context if there is one, else another context."""
    here = {trial.row.context_id for trial in treated}
    worked: set[str] = set()
    for control in controls:
        if control.row.outcome is Outcome.OK and control.row.context_id in here:
            a, b = dict(control.settings), dict(treated[0].settings)
            worked |= {key for key in a.keys() | b.keys() if a.get(key) != b.get(key)}
    if "dtype" in worked and outcome in _REMEDY_OF_DTYPE:
        return _REMEDY_OF_DTYPE[outcome]
    return next((remedy for name, remedy in _REMEDY_OF_SETTING.items() if name in worked), _Remedy.OTHER_CONTEXT)


def _title(treated: list[_Known]) -> str:
    points = sorted({f"{t.row.workload} {' '.join(f'{k}={v}' for k, v in t.settings)}".strip() for t in treated})
    return points[0] if len(points) == 1 else f"{points[0]} and {len(points) - 1} more"
