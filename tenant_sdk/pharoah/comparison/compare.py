"""What differs between two records, the likeliest reason first."""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass

from pharoah.comparison.record import GROUPS, Record, RecordError
from pharoah_archetypes.canonical import GrammarError, parse
from pharoah_archetypes.effects import effect_of
from pharoah_archetypes.inventory import inventory
from pharoah_archetypes.rungs import Rung
from pharoah_archetypes.similarity import differences

_RUNG_WEIGHTS = {Rung.MAJOR: 0.75, Rung.MINOR: 0.55, Rung.COLLECTIVES: 0.55, Rung.EXACT: 0.4}
_UNKNOWN_SOFTWARE = 0.2
_WEIGHTS = {"structure": 0.98, "choices": 0.7, "settings": 0.6}
_WHY = {
    "structure": "it computes something else",
    "choices": "the script, or a library, chose otherwise",
    "settings": "the script says so",
    "cost": "a consequence of the others, or another size",
}


@dataclass(frozen=True)
class Difference:
    """One value in which two records differ."""

    group: str
    name: str
    left: str
    """Empty where there is none; a hash where the record is sealed."""
    right: str
    weight: float
    """How likely it is what somebody looks for, 0 to 1."""
    why: str
    source: str = ""


def compare(left: Record, right: Record) -> list[Difference]:
    """All differences in what both records know, the heaviest first. Raises RecordError if they are not comparable."""
    if left.sealed != right.sealed:
        raise RecordError(_not_comparable(left, right))
    if not (left.groups.keys() & right.groups.keys()):
        which = "A" if not left.groups else "B"
        raise RecordError(f"there is nothing to compare: no step of {which} was recorded")
    found = [
        _judge(group, name, mine.get(name, ""), theirs.get(name, ""), bool(left.sealed))
        for group in GROUPS
        if group in left.groups and group in right.groups
        for mine, theirs in [(left.groups[group], right.groups[group])]
        for name in sorted({*mine, *theirs})
        if mine.get(name) != theirs.get(name)
    ]
    return sorted(found, key=lambda difference: -difference.weight)


def _not_comparable(left: Record, right: Record) -> str:
    if left.sealed and right.sealed:
        return "the records are sealed with different keys"
    return "one record is sealed and the other is not: give the key (--key FILE), so that it is sealed as well"


def _judge(group: str, name: str, left: str, right: str, sealed: bool) -> Difference:
    if group == "structure" and name == "archetype":
        return Difference(group, name, left, right, 1.0, _WHY[group])
    if effect := effect_of(group, name):
        return Difference(group, name, left, right, effect.weight, f"{effect.does}: {effect.why}", effect.source)
    if group == "software":
        return Difference(group, name, left, right, *_compare_versions(name, left, right, sealed))
    if group == "cost":
        return Difference(group, name, left, right, 0.3 if sealed else _compare_costs(left, right), _WHY[group])
    why = _WHY[group]
    if group == "structure" and not sealed and name in ("fwd", "bwd", "opt"):
        why = _compare_structure(name, left, right) or why
    return Difference(group, name, left, right, _WEIGHTS[group], why)


def _compare_structure(name: str, left: str, right: str) -> str:
    """What differs between two words; empty where that cannot be said, as for a word of another release, which may have
    classes of operators that this one does not know."""
    with contextlib.suppress(GrammarError):
        return "; ".join(differences(parse(f"{name}: {left}"), parse(f"{name}: {right}"))[:2])
    return ""


def _compare_versions(name: str, left: str, right: str, sealed: bool) -> tuple[float, str]:
    """Weight and reason of another version: how much of it changed, of software that is known to matter that much."""
    software = next((known for known in inventory() if known.name == name), None)
    matters = software.least if software else None
    if matters is None:
        return _UNKNOWN_SOFTWARE, "speed: another version"
    if sealed or not left or not right:
        return _RUNG_WEIGHTS[matters], "crash: another version" if left and right else "crash: only one of them uses it"
    parts = zip(left.split("."), right.split("."), strict=False)
    changed = next((at for at, (a, b) in enumerate(parts) if a != b), 2)
    rung = (Rung.MAJOR, Rung.MINOR, Rung.EXACT)[min(changed, 2)]
    what = "release" if rung is Rung.EXACT else f"{rung} version"
    return min(_RUNG_WEIGHTS[rung], _RUNG_WEIGHTS[matters]), f"crash: another {what}"


def _compare_costs(left: str, right: str) -> float:
    """Grows with the ratio; twice as much is 0.5."""
    a, b = float(left or 0), float(right or 0)
    if not a or not b:
        return 0.5
    return min(0.6, 0.5 * abs(math.log2(a / b)))
