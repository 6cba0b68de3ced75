"""The types of a signal."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from pharoah_protocol.vocabulary import WorseDirection

_NAME = re.compile("[a-z][a-z0-9_]*")
DEFAULT_COLUMN = 100
"""After the signals that come with Pharoah."""


class Source(StrEnum):
    """Who measures a signal."""

    REPORT = "report"
    """The tenant's sidecar, in the reports of a run."""
    TELEMETRY = "telemetry"
    """The agent of the node."""


@dataclass(frozen=True, kw_only=True)
class Feature:
    """One number that is computed from the values of a signal so far."""

    name: str
    measures: str
    compute: Callable[[Sequence[float]], float]
    """Takes the values of the windows so far, oldest first, at least one. 0 stands for a healthy run. The sequence may
    become longer after the call, so that a function which keeps values must copy them."""


@dataclass(frozen=True, kw_only=True)
class Signal:
    """What is measured in each window. Raises ValueError for a name that is not made of lower-case letters, digits and
    underscores, for a signal without features, and for two features of one name."""

    name: str
    measures: str
    """With its unit."""
    source: Source
    worse: WorseDirection
    features: tuple[Feature, ...]
    column: int = DEFAULT_COLUMN
    """Place of the features among the columns of a fit, smaller first, then by name. The last digits of a fit depend on
    this order, so it stays as it is once a release was learned."""

    def __post_init__(self) -> None:
        for name in (self.name, *(feature.name for feature in self.features)):
            if not _NAME.fullmatch(name):
                raise ValueError(f"signal {self.name!r}: the name {name!r} is not of the form {_NAME.pattern}")
        if len({feature.name for feature in self.features}) != len(self.features) or not self.features:
            raise ValueError(f"signal {self.name!r}: needs at least one feature, each with a name of its own")
        if not isinstance(self.source, Source) or not isinstance(self.worse, WorseDirection):
            raise ValueError(f"signal {self.name!r}: source and worse must be members of Source and WorseDirection")
