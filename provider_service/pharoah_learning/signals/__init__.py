"""The signals: what is measured of a run and its node, window by window, and the features that risk is made of.

A signal is one file here, or an entry point of the group `pharoah.signals` in another distribution: an object of the
type `Signal`. Cells, the degradation model and the monitor work with the names of signals and features, so that a new
signal needs no other change.
"""

from pharoah_learning.signals._registry import (
    FEATURE_LIMIT,
    GROUP,
    HEALTHY_FEATURE,
    SIGNALS,
    feature_names,
    features,
    features_over_time,
)
from pharoah_learning.signals._signal import Feature, Signal, Source
from pharoah_protocol.vocabulary import WorseDirection

__all__ = [
    "FEATURE_LIMIT",
    "GROUP",
    "HEALTHY_FEATURE",
    "SIGNALS",
    "Feature",
    "Signal",
    "Source",
    "WorseDirection",
    "feature_names",
    "features",
    "features_over_time",
]
