"""The incompatibility table: which jobs fail in which contexts, by counting, with matched controls.

Small-numbers rule: a row blocks only with at least 5 of 5 failures of one kind and at least 20 matched controls without
one. A control is a trial of the same workload that differs in exactly one thing: one software setting (any context)
or the context (same settings). Failures of memory never reach beyond the exact rung: whether another size fits
is arithmetic, not statistics.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import median

from pharoah_archetypes import RUNGS, Fingerprint, rung_tokens
from pharoah_learning.evidence import Trial
from pharoah_learning.release import LearnedRow

BLOCK_FAILURES = 5
BLOCK_CONTROLS = 20
SLOW_RATIO = 1.5
"""Slower than in other contexts by this much more than the context slows everything else."""

REMEDY_OF_SETTING = {"attention": 1, "length": 4, "batch": 4, "width": 4, "depth": 4, "optimizer": 6}
OTHER_CONTEXT = 5

Tokens = tuple[str, ...]


@dataclass(frozen=True)
class _Trial:
    row: Trial
    tokens: dict[str, Tokens]

    @property
    def settings(self) -> tuple[tuple[str, object], ...]:
        return tuple(sorted(self.row.settings.items()))


def learn_incompatibilities(trials: Sequence[Trial]) -> list[LearnedRow]:
    """Rows for every rung, server configuration and device model that was tried."""
    known = [_with_tokens(trial) for trial in mark_slow(trials)]
    rows: list[LearnedRow] = []
    for scope, group_of in (("server", "context_id"), ("device", "device_id")):
        for rung in RUNGS:
            groups: dict[tuple[str, Tokens], list[_Trial]] = defaultdict(list)
            for trial in known:
                groups[getattr(trial.row, group_of), trial.tokens[rung]].append(trial)
            rows += [
                _row(scope, group_id, rung, tokens, treated, known)
                for (group_id, tokens), treated in sorted(groups.items())
            ]
    return rows


def mark_slow(trials: Sequence[Trial]) -> list[Trial]:
    """Trials that finished, but much slower here than elsewhere, get the outcome `slow`.

    A context that slows everything alike is not an incompatibility: each workload's ratio is taken relative to the
    median ratio of its context.
    """
    steps: dict[tuple[object, ...], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for trial in trials:
        if trial.outcome == "ok" and len(trial.step_seconds) > 1:
            steps[_key(trial)][trial.context_id].append(median(trial.step_seconds[1:]))
    ratios: dict[tuple[tuple[object, ...], str], float] = {}
    for key, by_context in steps.items():
        for context, seconds in by_context.items():
            elsewhere = [median(s) for c, s in by_context.items() if c != context]
            if elsewhere:
                ratios[key, context] = median(seconds) / median(elsewhere)
    general = {context: max(1.0, median(r for (_, c), r in ratios.items() if c == context)) for _, context in ratios}
    return [
        replace(trial, outcome="slow")
        if trial.outcome == "ok"
        and ratios.get((_key(trial), trial.context_id), 0) > SLOW_RATIO * general.get(trial.context_id, 1.0)
        else trial
        for trial in trials
    ]


def _key(trial: Trial) -> tuple[object, ...]:
    return (trial.workload, *sorted(trial.settings.items(), key=str))


def _with_tokens(trial: Trial) -> _Trial:
    fingerprint = Fingerprint.from_json(trial.fingerprint)
    return _Trial(trial, {rung: rung_tokens(fingerprint, rung) for rung in RUNGS})


def _row(
    scope: str, group_id: str, rung: str, tokens: Tokens, treated: list[_Trial], known: Iterable[_Trial]
) -> LearnedRow:
    outcomes = Counter(trial.row.outcome for trial in treated if trial.row.outcome != "ok")
    outcome, failures = outcomes.most_common(1)[0] if outcomes else ("ok", 0)
    controls = _controls(scope, treated, known)
    failed = [trial for trial in controls if trial.row.outcome == outcome] if failures else []
    severity = _severity(rung, outcome, failures, len(treated), len(failed), len(controls))
    if severity != "block" and failed and rung != "major":
        # It may fail in every context: then only settings can be the contrast.
        same_context_free = [t for t in controls if t.settings not in {x.settings for x in treated}]
        failed_there = [t for t in same_context_free if t.row.outcome == outcome]
        stricter = _severity(rung, outcome, failures, len(treated), len(failed_there), len(same_context_free))
        if stricter == "block":
            severity, controls, failed = stricter, same_context_free, failed_there
    return LearnedRow(
        scope,
        group_id,
        rung,
        tokens,
        severity,
        outcome,
        failures,
        len(treated),
        len(failed),
        len(controls),
        _remedy(treated, controls, outcome) if severity != "ok" else 0,
        _title(treated),
    )


def _severity(rung: str, outcome: str, failures: int, runs: int, base_failures: int, base_runs: int) -> str:
    if not failures:
        return "ok"
    certain = failures == runs >= BLOCK_FAILURES and base_failures == 0 and base_runs >= BLOCK_CONTROLS
    if outcome in ("slow", "timeout") or rung == "major" or (outcome == "memory" and rung != "exact"):
        return "warn"
    return "block" if certain else "warn"


def _controls(scope: str, treated: list[_Trial], known: Iterable[_Trial]) -> list[_Trial]:
    """Trials that differ from a treated one in one setting, or in the context alone."""
    own = {id(trial) for trial in treated}

    def group(trial: _Trial) -> str:
        return trial.row.context_id if scope == "server" else trial.row.device_id

    here = {group(trial) for trial in treated}
    points = {(trial.row.workload, trial.settings) for trial in treated}
    return [
        trial
        for trial in known
        if id(trial) not in own
        and any(
            trial.row.workload == workload
            and (_differing(trial.settings, settings) == 1 or (trial.settings == settings and group(trial) not in here))
            for workload, settings in points
        )
    ]


def _differing(left: tuple[tuple[str, object], ...], right: tuple[tuple[str, object], ...]) -> int:
    """In how many settings two trials differ; an absent setting is the workload's default, which is a value too."""
    a, b = dict(left), dict(right)
    return sum(a.get(key) != b.get(key) for key in a.keys() | b.keys())


def _remedy(treated: list[_Trial], controls: list[_Trial], outcome: str) -> int:
    """The one change that made it work: a setting in this context if there is one, else another context."""
    here = {trial.row.context_id for trial in treated}
    worked: set[str] = set()
    for control in controls:
        if control.row.outcome == "ok" and control.row.context_id in here:
            a, b = dict(control.settings), dict(treated[0].settings)
            worked |= {key for key in a.keys() | b.keys() if a.get(key) != b.get(key)}
    if "dtype" in worked and outcome in ("nan", "error", "slow"):
        return 3 if outcome == "nan" else 2 if outcome == "slow" else 7
    for setting, code in REMEDY_OF_SETTING.items():
        if setting in worked:
            return code
    return OTHER_CONTEXT


def _title(treated: list[_Trial]) -> str:
    points = sorted({f"{t.row.workload} {' '.join(f'{k}={v}' for k, v in t.settings)}".strip() for t in treated})
    return points[0] if len(points) == 1 else f"{points[0]} and {len(points) - 1} more"
