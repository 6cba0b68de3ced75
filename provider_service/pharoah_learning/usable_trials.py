"""Which trials learning may use, and which job each of them was.

A fingerprint is a function of workload and settings, and both are the provider's: it has ordered the cell. So the
provider dry-runs the cell itself, and the word of the node's agent is a check only.

* An agent that states what the provider's dry run gave (the tokens of the rung `exact`): the trial counts.
* An agent that differs in software alone: the versions are a fact of its node. They count where the agents of two nodes
  state the same ones.
* No dry run of the provider: the fingerprint counts on which the agents of two nodes agree.
* No fingerprint, because the cell failed before it had a model: `early_failures` says which one it gets.
* All others are left out. One agent can thus never bring a trial of a job that was not ordered.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache

from pharoah_archetypes import Fingerprint, rung_tokens
from pharoah_learning.early_failures import EarlyFailures
from pharoah_learning.evidence import EvidenceKind, LeftOut, Trial
from pharoah_learning.opinions import MIN_NODES
from pharoah_protocol.bounds import check_durations, is_number
from pharoah_protocol.row_inputs import check_inputs
from pharoah_protocol.vocabulary import MEASURED_OUTCOMES, Rung

NOT_ON_ITS_DEVICE = "it did not run on the device that its context names"
OTHER_JOB = "its fingerprint is not that of the cell that was ordered"
NOT_AGREED = "the fingerprint is the word of one agent: the provider has no dry run of the cell"
NO_CONTEXT = "it ran outside the fleet, so that it says something about software alone"
OTHER_SOFTWARE = "its software differs from the provider's, and no second node has the same"


@dataclass(frozen=True)
class _Stated:
    """A trial that can be read, with what its agent stated."""

    trial: Trial
    fingerprint: Fingerprint
    exact: tuple[str, ...]
    """The tokens of the rung `exact`."""
    content: str
    """Workload and settings, as JSON."""


@dataclass(frozen=True)
class _Early:
    """A trial that can be read and has no fingerprint."""

    trial: Trial


def usable_trials(trials: Iterable[Trial], left_out: LeftOut) -> list[Trial]:
    """The trials that count, in their order, each with the fingerprint that rows are made from.

    What cannot be used is added to `left_out`. Never raises, whatever the trials hold.
    """
    read = [one for trial in trials if (one := _read(trial, left_out)) is not None]
    stated = [one for one in read if isinstance(one, _Stated)]
    agreeing: dict[tuple[str, tuple[str, ...]], set[str]] = defaultdict(set)
    for one in stated:
        agreeing[one.content, one.exact].add(one.trial.node)
    usable: dict[int, Trial] = {}
    """Place among those that can be read, to the trial as it counts."""

    def add(place: int, trial: Trial, decision: tuple[Fingerprint | None, str]) -> None:
        fingerprint, reason = decision
        if fingerprint is None:
            left_out.add(EvidenceKind.TRIAL, trial.node, reason)
        else:
            usable[place] = replace(trial, fingerprint=fingerprint.to_json())

    for place, one in enumerate(read):
        if isinstance(one, _Stated):
            agreed = len(agreeing[one.content, one.exact]) >= MIN_NODES
            add(place, one.trial, _decide(one, agreed))
    early = {place: one.trial for place, one in enumerate(read) if isinstance(one, _Early)}
    failures = EarlyFailures(early.values(), list(usable.values()))
    for place, trial in early.items():
        add(place, trial, failures.decide(trial, _own(trial)))
    return [trial for _, trial in sorted(usable.items())]


def _decide(one: _Stated, agreed: bool) -> tuple[Fingerprint | None, str]:
    """The fingerprint that counts; None with the reason where none does."""
    own = _own(one.trial)
    for fingerprint in own:
        if rung_tokens(fingerprint, Rung.EXACT) == one.exact:
            return fingerprint, ""
    same_structure = [fingerprint for fingerprint in own if _structure(fingerprint) == _structure(one.fingerprint)]
    if own and not same_structure:
        return None, OTHER_JOB
    if not agreed:
        return None, OTHER_SOFTWARE if own else NOT_AGREED
    if own:
        return replace(same_structure[-1], versions=one.fingerprint.versions), ""
    return one.fingerprint, ""


def _own(trial: Trial) -> list[Fingerprint]:
    return [fingerprint for text in trial.own_fingerprints if (fingerprint := _fingerprint(text)) is not None]


def _structure(fingerprint: Fingerprint) -> tuple[str, ...]:
    """The tokens of the rung `exact` without those of software."""
    return rung_tokens(replace(fingerprint, versions={}), Rung.EXACT)


def _read(trial: Trial, left_out: LeftOut) -> _Stated | _Early | None:
    """None for a trial that cannot be used whatever others state."""
    reason = _unusable(trial)
    if not reason and not trial.fingerprint:
        return _Early(trial)
    fingerprint = None if reason else _fingerprint(trial.fingerprint)
    if fingerprint is None:
        left_out.add(EvidenceKind.TRIAL, trial.node, reason or "its fingerprint cannot be read")
        return None
    content = json.dumps([trial.workload, trial.settings], sort_keys=True, default=str)
    return _Stated(trial, fingerprint, rung_tokens(fingerprint, Rung.EXACT), content)


def _unusable(trial: Trial) -> str:
    """Why a trial cannot be used, apart from its fingerprint; empty when it can."""
    if not isinstance(trial.fingerprint, str):
        return "its fingerprint cannot be read"
    if trial.outcome not in MEASURED_OUTCOMES:
        return "no cell has such an outcome"
    if trial.context_id == "" and trial.device_id == "":
        return NO_CONTEXT
    if trial.device is not trial.context_device:
        return NOT_ON_ITS_DEVICE
    texts = (trial.workload, trial.context_id, trial.device_id, trial.node)
    if not all(isinstance(text, str) and text for text in texts):
        return "it does not name its workload, its node and its context"
    if not all(isinstance(fact, str) for fact in trial.facts):
        return "its facts cannot be read"
    settings = trial.settings
    if not isinstance(settings, dict) or not all(isinstance(value, str | int | float) for value in settings.values()):
        return "its settings are not those of a cell"
    versions = trial.versions
    if not isinstance(versions, dict) or not all(isinstance(version, str) for version in versions.values()):
        return "its versions cannot be read"
    try:
        check_durations("step_seconds", trial.step_seconds)
    except (ValueError, TypeError):
        return "its step times cannot have been measured"
    if not all(is_number(loss) for loss in trial.losses) or not isinstance(trial.seed, int):
        return "its losses cannot have been computed"
    return ""


@lru_cache(maxsize=4096)  # the trials of one cell have few different texts, and each is read once
def _fingerprint(text: str) -> Fingerprint | None:
    """None for a text that is no fingerprint, or one whose rows cannot be sealed."""
    try:
        fingerprint = Fingerprint.from_json(text)
        check_inputs(fingerprint)
    except (ValueError, TypeError, RecursionError):
        return None
    return fingerprint
