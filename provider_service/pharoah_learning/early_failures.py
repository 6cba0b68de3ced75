"""Trials that failed before they had a model, such as those of a version that cannot be imported.

Such a trial has no fingerprint of its own. It takes one from what the provider knows, with the versions that were read
back in its environment:

* that of the provider's own dry run, where this gave one;
* else the structure on which all usable trials of the same workload and settings agree, in whatever environments they
  ran. Versions that compute different structures leave open which one it would have had: then it is left out.

One agent proves nothing (ADR 21): versions that are not those of the provider's dry run count where the agents of two
nodes state that cells have failed with the same ones.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from pharoah_archetypes import Fingerprint, rung_tokens
from pharoah_learning.evidence import Trial
from pharoah_learning.opinions import MIN_NODES
from pharoah_protocol.vocabulary import ENVIRONMENT, Outcome, Rung

WORKED = "it worked, and its fingerprint is missing"
NO_VERSIONS = "it failed before it had a model, and not all versions of its software are known"
ONE_NODE = "it failed before it had a model, and no second node has failed with the same software"
NO_STRUCTURE = "it failed before it had a model, and nothing like it has run elsewhere"
STRUCTURES = "it failed before it had a model, and other environments compute different structures"


class DecidedFingerprint(NamedTuple):
    """The fingerprint that counts for a trial; None with the reason where none does."""

    fingerprint: Fingerprint | None
    reason: str = ""


class EarlyFailures:
    """Decides which fingerprint a trial without one gets."""

    def __init__(self, early: Iterable[Trial], usable: Iterable[Trial]) -> None:
        """`early`: all trials without a fingerprint; `usable`: all trials that count, each with the fingerprint that
        counts."""
        self._nodes: dict[tuple[str, str], set[str]] = defaultdict(set)
        """What was run, with which versions, to the nodes on which it failed early."""
        for trial in early:
            if trial.outcome is not Outcome.OK:
                self._nodes[_content(trial, trial.settings), _text(trial.versions)].add(trial.node)
        self._elsewhere: dict[str, dict[tuple[str, ...], Fingerprint]] = defaultdict(dict)
        """What was run, in whatever environment, to the structures it had, each with one of its fingerprints."""
        for trial in usable:
            fingerprint = Fingerprint.from_json(trial.fingerprint)
            structure = rung_tokens(replace(fingerprint, versions={}), Rung.EXACT)
            self._elsewhere[_content(trial, _without_environment(trial))].setdefault(structure, fingerprint)

    def decide(self, trial: Trial, own: Sequence[Fingerprint]) -> DecidedFingerprint:
        """Which fingerprint counts. `own`: the provider's own for the trial,
        oldest first."""
        if trial.outcome is Outcome.OK:
            return DecidedFingerprint(None, WORKED)
        for fingerprint in own:
            stated = _with_versions(fingerprint, trial)
            if stated is not None and rung_tokens(stated, Rung.EXACT) == rung_tokens(fingerprint, Rung.EXACT):
                return DecidedFingerprint(fingerprint)
        structures = self._elsewhere[_content(trial, _without_environment(trial))]
        known = list(own[-1:]) or list(structures.values())
        if len(known) != 1:
            return DecidedFingerprint(None, STRUCTURES if known else NO_STRUCTURE)
        borrowed = _with_versions(known[0], trial)
        if borrowed is None:
            return DecidedFingerprint(None, NO_VERSIONS)
        if len(self._nodes[_content(trial, trial.settings), _text(trial.versions)]) < MIN_NODES:
            return DecidedFingerprint(None, ONE_NODE)
        return DecidedFingerprint(borrowed)


def _with_versions(fingerprint: Fingerprint, trial: Trial) -> Fingerprint | None:
    """The fingerprint with the versions of the trial, and no code: nothing ran. None where one of them is not known."""
    versions = {name: trial.versions.get(name, "") for name in fingerprint.versions}
    return replace(fingerprint, versions=versions, code={}) if all(versions.values()) else None


def _without_environment(trial: Trial) -> dict[str, object]:
    return {name: value for name, value in trial.settings.items() if name != ENVIRONMENT}


def _content(trial: Trial, settings: dict[str, object]) -> str:
    return _text([trial.workload, settings])


def _text(value: object) -> str:
    return json.dumps(value, sort_keys=True, default=str)
