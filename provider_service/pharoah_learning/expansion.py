"""Expansion of rows at sealing: a row about one version is sealed for the versions that behave the same.

What a row states does not change by it: counts, evidence and grade are those of the learned row. A row is expanded to
the version sets that cells of its archetype have run with, where each version that differs is in the same stable
sub-archetype. Cells with another version in the same class of nodes speak for themselves, so nothing is expanded to
them; nor where cells with both versions end differently anywhere.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import NamedTuple

from pharoah_archetypes import RUNGS, Fingerprint, rung_tokens
from pharoah_archetypes.inventory import inventory
from pharoah_learning.evidence import Trial, on_their_device
from pharoah_learning.known_versions import SubArchetype
from pharoah_learning.release import LearnedRow
from pharoah_learning.version_order import VersionKey, public_version, version_key
from pharoah_protocol.vocabulary import Outcome, RowKind, Rung, Scope

MAX_VERSION_SETS = 64
"""Version sets that one row is sealed for, the newest first. Every tenant downloads the whole table of a class."""
_ARCHETYPE = "archetype="

Tokens = tuple[str, ...]
Versions = dict[str, str]


class _Target(NamedTuple):
    """What a row is about."""

    scope: Scope
    group_id: str
    rung: Rung
    tokens: Tokens


def expand_rows(
    rows: Sequence[LearnedRow], trials: Iterable[Trial], sub_archetypes: Iterable[SubArchetype]
) -> list[LearnedRow]:
    """Further rows, for version sets that behave as those of `rows` do. `rows` come from these trials."""
    tried = _Tried.from_trials(trials)
    same = _SameVersions.from_sub_archetypes(sub_archetypes)
    taken = {_target(row) for row in rows} | tried.targets
    others = cache(partial(_others, tried, same))
    candidates: dict[_Target, list[LearnedRow]] = defaultdict(list)
    for row in rows:
        if row.kind is not RowKind.ARCHETYPE:
            continue
        own = tuple(token for token in row.tokens if token.partition("=")[0] in _software(row.rung))
        archetype = next((token.removeprefix(_ARCHETYPE) for token in row.tokens if token.startswith(_ARCHETYPE)), "")
        for versions in others(archetype, row.rung, own):
            tokens = tuple(sorted({*row.tokens, *versions} - ({*own} - {*versions})))
            target = _Target(row.scope, row.group_id, row.rung, tokens)
            if target not in taken and not tried.disagree(row.rung, row.tokens, tokens):
                candidates[target].append(row)
    return [
        _expand(_strongest(sources), target)
        for target, sources in sorted(candidates.items())
        if len({source.outcome for source in sources}) == 1
    ]


def _target(row: LearnedRow) -> _Target:
    return _Target(row.scope, row.group_id, row.rung, row.tokens)


def _strongest(sources: Sequence[LearnedRow]) -> LearnedRow:
    return max(sources, key=lambda row: (row.runs, row.tokens))


def _expand(row: LearnedRow, target: _Target) -> LearnedRow:
    learned_with = " ".join(sorted(set(row.tokens) - set(target.tokens)))
    return replace(row, tokens=target.tokens, title=f"{row.title} (learned with {learned_with})")


@dataclass(frozen=True)
class _Tried:
    """What cells have run with."""

    targets: frozenset[_Target]
    version_sets: dict[tuple[str, Rung], dict[Tokens, list[Versions]]]
    """Archetype and rung to the tokens of version sets, each with the full versions behind it, of the software that
    the rung names; newest first."""
    failed: dict[tuple[Rung, Tokens], dict[str, bool]]
    """Rung and tokens to contexts, and whether any cell has failed there."""

    @classmethod
    def from_trials(cls, trials: Iterable[Trial]) -> _Tried:
        targets: set[_Target] = set()
        sets: dict[tuple[str, Rung], dict[Tokens, list[Versions]]] = defaultdict(lambda: defaultdict(list))
        failed: dict[tuple[Rung, Tokens], dict[str, bool]] = defaultdict(lambda: defaultdict(bool))
        read: dict[str, Fingerprint] = {}
        for trial in on_their_device(trials):
            if trial.fingerprint not in read:
                read[trial.fingerprint] = Fingerprint.from_json(trial.fingerprint)
            fingerprint = read[trial.fingerprint]
            for rung in RUNGS:
                tokens = rung_tokens(fingerprint, rung)
                versions = {
                    name: public_version(version)
                    for name, version in fingerprint.versions.items()
                    if name in _software(rung)
                }
                targets.add(_Target(Scope.SERVER, trial.context_id, rung, tokens))
                targets.add(_Target(Scope.DEVICE, trial.device_id, rung, tokens))
                failed[rung, tokens][trial.context_id] |= trial.outcome is not Outcome.OK
                named = tuple(token for token in tokens if token.partition("=")[0] in _software(rung))
                behind = sets[fingerprint.archetype, rung][named]
                if versions not in behind:
                    behind.append(versions)
        ordered = {key: dict(sorted(found.items(), key=_age, reverse=True)) for key, found in sets.items()}
        return cls(frozenset(targets), ordered, {key: dict(found) for key, found in failed.items()})

    def disagree(self, rung: Rung, left: Tokens, right: Tokens) -> bool:
        """Whether cells with both tokens ran in one context, and those of one of them alone failed there."""
        one, other = self.failed.get((rung, left), {}), self.failed.get((rung, right), {})
        return any(one[context] != other[context] for context in one.keys() & other.keys())


def _age(entry: tuple[Tokens, list[Versions]]) -> tuple[list[tuple[str, VersionKey]], Tokens]:
    """Sorts version sets from old to new."""
    tokens, behind = entry
    return max(sorted((name, version_key(version)) for name, version in one.items()) for one in behind), tokens


@dataclass(frozen=True)
class _SameVersions:
    """Which versions behave the same, by archetype and library."""

    clusters: Mapping[tuple[str, str], Sequence[SubArchetype]]

    @classmethod
    def from_sub_archetypes(cls, sub_archetypes: Iterable[SubArchetype]) -> _SameVersions:
        found: dict[tuple[str, str], list[SubArchetype]] = defaultdict(list)
        for one in sub_archetypes:
            found[one.archetype, one.library].append(one)
        return cls(found)

    def holds(self, archetype: str, sets: Sequence[Versions]) -> bool:
        """Whether an archetype behaves the same with all of these version sets."""
        differing = {name for one in sets for name in one if len({other.get(name) for other in sets}) > 1}
        explained: set[str] = set()
        for library in sorted(differing):
            versions = {one.get(library) for one in sets}
            for cluster in self.clusters.get((archetype, library), ()):
                if versions <= cluster.expanded_versions:
                    explained |= {library, *cluster.together}
        return differing <= explained


def _others(tried: _Tried, same: _SameVersions, archetype: str, rung: Rung, own: Tokens) -> list[Tokens]:
    """The version tokens of a rung with which an archetype behaves as it does with its own ones."""
    known = tried.version_sets.get((archetype, rung), {})
    if own not in known:
        return []
    newest = [tokens for tokens in list(known)[:MAX_VERSION_SETS] if tokens != own]
    return [tokens for tokens in newest if same.holds(archetype, [*known[own], *known[tokens]])]


@cache
def _software(rung: Rung) -> frozenset[str]:
    """The software whose versions a rung names."""
    return frozenset(software.name for software in inventory() if rung in software.rungs)
