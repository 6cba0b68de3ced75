"""The registry of signals, and the features of a run's windows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache

from pharoah_learning.signals._signal import Signal
from pharoah_protocol.registry import Registry, RegistryError
from pharoah_protocol.vocabulary import WorseDirection
from pharoah_protocol.windows import Window

GROUP = "pharoah.signals"
"""Entry points of this group are signals of other distributions."""
FEATURE_LIMIT = 2.0
"""Features are clipped to this, so that one wild value of a few windows does not decide a fit."""
HEALTHY_FEATURE = 0.0
"""The least value of a feature, and its value where the signal was not measured: nothing speaks against the run. A
signal that is better than it was in the beginning says nothing: less memory excuses no slow steps."""


SIGNALS = Registry(Signal, "pharoah_learning.signals", GROUP)
"""All signals by name."""


@cache
def _columns() -> tuple[Signal, ...]:
    """All signals, in the order of their columns. Raises RegistryError for a feature that has the name of another."""
    ordered = sorted(SIGNALS, key=lambda signal: (signal.column, signal.name))
    owners: dict[str, str] = {}
    for signal in ordered:
        for feature in signal.features:
            if feature.name in owners:
                raise RegistryError(f"signal {signal.name}: {owners[feature.name]} has a feature {feature.name!r}, too")
            owners[feature.name] = signal.name
    return tuple(ordered)


def feature_names() -> tuple[str, ...]:
    """The names of all features, in the order of the columns of a fit."""
    return tuple(feature.name for signal in _columns() for feature in signal.features)


def features(windows: Sequence[Window]) -> dict[str, float]:
    """All features by name after the last of these windows of one run, oldest first; larger is worse.

    Features are clipped to the range from HEALTHY_FEATURE to FEATURE_LIMIT. A signal that no window has a value of
    gives HEALTHY_FEATURE.
    """
    return _compute({signal.name: _values(windows, signal.name) for signal in _columns()})


def features_over_time(windows: Sequence[Window]) -> Iterator[dict[str, float]]:
    """What `features` gives after each of these windows. Each window is read once, so that the time grows with their
    number and not with its square."""
    values: dict[str, list[float]] = {signal.name: [] for signal in _columns()}
    for window in windows:
        for name, so_far in values.items():
            so_far += _values([window], name)
        yield _compute(values)


def _values(windows: Iterable[Window], signal: str) -> list[float]:
    return [window.values[signal] for window in windows if signal in window.values]


def _compute(values_of: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """All features from the values of each signal so far."""
    computed: dict[str, float] = {}
    for signal in _columns():
        values = values_of[signal.name]
        sign = 1.0 if signal.worse is WorseDirection.HIGHER else -1.0
        for feature in signal.features:
            value = sign * float(feature.compute(values)) if values else HEALTHY_FEATURE
            computed[feature.name] = max(HEALTHY_FEATURE, min(FEATURE_LIMIT, value))
    return computed
