"""The remedy of a row about failures: the one change with which controls have worked.

One node proves nothing (ADR 21): a change is a remedy where it has worked on two nodes. And a remedy has a direction,
such as a smaller batch: a change that worked in another direction is none.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from enum import IntEnum

from pharoah_learning.known_trials import KnownTrial, Point
from pharoah_learning.opinions import MIN_NODES
from pharoah_protocol.bounds import is_number
from pharoah_protocol.vocabulary import Outcome, Scope


class Remedy(IntEnum):
    """The codes of `remedies.toml` that learning gives to rows about archetypes."""

    NONE = 0
    FUSED_ATTENTION = 1
    FLOAT32 = 2
    WIDER_DTYPE = 3
    SMALLER_BATCH = 4
    OTHER_CONTEXT = 5
    OTHER_OPTIMIZER = 6
    SUPPORTED_DTYPE = 7


COMMON_DEFAULTS: Mapping[str, object] = {"dtype": "float32", "optimizer": "adamw/forloop"}
"""What a cell has that does not state these settings, whatever its workload (`pharoah_benchmarks.workloads.build`).
Other defaults belong to one workload, and are not known here."""
_SIZES = ("length", "batch", "width", "depth")
_ORDER = ("dtype", "attention", *_SIZES, "optimizer")
"""Settings whose change can be a remedy; where several have worked, the first one is advised."""


def remedy_of(scope: Scope, treated: Iterable[KnownTrial], controls: Iterable[KnownTrial], outcome: Outcome) -> Remedy:
    """What controls of trials that failed in this way show to help: a setting in these contexts if there is one, else
    another group. `NONE` where they show nothing."""
    failing = {trial.point for trial in treated if trial.row.outcome is outcome}
    contexts, groups = {trial.row.context_id for trial in treated}, {trial.group(scope) for trial in treated}
    here: dict[Point, set[str]] = defaultdict(set)
    elsewhere: set[str] = set()
    for control in controls:
        if control.row.outcome is Outcome.OK:
            if control.row.context_id in contexts:
                here[control.point].add(control.row.node)
            if control.point in failing and control.group(scope) not in groups:
                elsewhere.add(control.row.node)
    found = _by_setting(failing, here, outcome)
    enough = Remedy.OTHER_CONTEXT if len(elsewhere) >= MIN_NODES else Remedy.NONE
    return next((found[name] for name in _ORDER if name in found), enough)


def _by_setting(failing: Iterable[Point], here: Mapping[Point, set[str]], outcome: Outcome) -> dict[str, Remedy]:
    """Setting to remedy, of those that alone have helped on two nodes."""
    nodes: dict[str, set[str]] = defaultdict(set)
    remedies: dict[str, Remedy] = {}
    for failed in failing:
        for worked, on in here.items():
            differing = failed.differing(worked) if failed.workload == worked.workload else set()
            if len(differing) == 1:
                name = differing.pop()
                remedy = _find_change_remedy(name, _value(failed, name), _value(worked, name), outcome)
                if remedy is not Remedy.NONE:
                    nodes[name] |= on
                    remedies[name] = remedy
    return {name: remedy for name, remedy in remedies.items() if len(nodes[name]) >= MIN_NODES}


def _value(point: Point, name: str) -> object:
    """The value of a setting; None where it is a default that is not known here."""
    return dict(point.settings).get(name, COMMON_DEFAULTS.get(name))


def _find_change_remedy(name: str, failed: object, worked: object, outcome: Outcome) -> Remedy:
    """The remedy that says what a change of one setting did; `NONE` where no remedy says it. For one setting and one
    outcome it is always the same one."""
    if name == "dtype":
        return _find_dtype_remedy(failed, worked, outcome)
    if name == "attention" and failed == "math":
        return Remedy.FUSED_ATTENTION
    if name in _SIZES and is_number(failed) and is_number(worked) and worked < failed:
        return Remedy.SMALLER_BATCH
    if name == "optimizer" and _family(failed) == _family(worked):
        return Remedy.OTHER_OPTIMIZER
    return Remedy.NONE


def _find_dtype_remedy(failed: object, worked: object, outcome: Outcome) -> Remedy:
    if outcome is Outcome.ERROR:
        return Remedy.SUPPORTED_DTYPE
    if outcome is Outcome.NAN and failed == "float16" and worked in ("float32", "bfloat16"):
        return Remedy.WIDER_DTYPE
    if outcome is Outcome.SLOW and worked == "float32":
        return Remedy.FLOAT32
    return Remedy.NONE


def _family(optimizer: object) -> str:
    """`adamw` of `adamw/fused`."""
    return str(optimizer).partition("/")[0]
