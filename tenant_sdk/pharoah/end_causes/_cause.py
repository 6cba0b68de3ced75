"""How a job ended, and who caused that, judged by rules from what its own machine shows.

Only the end state and the attribution leave the machine. Our rules are the modules of `pharoah.end_causes`, one each.
Other distributions add theirs in the entry-point group `pharoah.end_causes`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple

from pharoah.end_causes._memory_kills import NO_KILLS, MemoryKills
from pharoah_protocol.attribution import SIGNAL_BASE, Strength, rules
from pharoah_protocol.registry import Registry, RegistryError
from pharoah_protocol.vocabulary import Attribution, EndState

log = logging.getLogger("pharoah.sidecar")

GROUP = "pharoah.end_causes"
_PACKAGE = "pharoah.end_causes"
_NO_GROUP = ""
"""No distribution has entry points in it."""
_UNIQUE = ("order",)
"""What no two causes may share."""
_NEGATIVE_CODES = range(192, 255)
"""Exit codes of a launcher that leaves with -n because signal n has ended a worker, as DeepSpeed's does: 247 for
SIGKILL, since an exit code is one byte (exit(3)). The largest number of a signal is 64 (signal(7))."""


class JudgedEnd(NamedTuple):
    """How a job ended, and who caused it."""

    state: EndState
    attribution: Attribution = Attribution.UNKNOWN


@dataclass(frozen=True, kw_only=True)
class EndFacts:
    """What this machine shows of the end of a job that has not ended well."""

    status: int = 0
    """Exit code of the job's process, or -n when signal n ended it; 0 where nobody has waited for it."""
    error: str = ""
    """Type and message of the exception that ended the first rank that failed; empty where there was none."""
    terminated_at: float | None = None
    """Unix seconds at which the job, or the sidecar with it, was asked to end; None when neither was."""
    ended_at: float = 0.0
    """Unix seconds."""
    environ: Mapping[str, str] = field(default_factory=dict)
    kills: MemoryKills = NO_KILLS
    """Since the job began."""

    @property
    def signal(self) -> int:
        """The signal that ended the job; 0 for none. A launcher reports that of a worker as an exit code: 128 and its
        number, or its negative number. 255 names none, because it is the code of `exit(-1)` as well."""
        if self.status < 0:
            return -self.status
        if self.status in _NEGATIVE_CODES:
            return _NEGATIVE_CODES.stop + 1 - self.status
        return self.status - SIGNAL_BASE if SIGNAL_BASE < self.status < _NEGATIVE_CODES.start else 0

    @property
    def error_strength(self) -> Strength | None:
        """How much the error says about its cause; None where no rule explains it, and without an error."""
        name = rules().cause(EndState.FAILED, self.error.splitlines()).rule
        return next((rule.strength for rule in rules().rules if rule.name == name), None)

    @property
    def is_own_error(self) -> bool:
        """Whether something went wrong in the rank that has reported the error. An interrupt, and what a rank sees of
        the end of the others, follow from another end."""
        interrupted = self.error.partition(":")[0] == KeyboardInterrupt.__name__
        return bool(self.error) and not interrupted and self.error_strength is not Strength.SYMPTOM


@dataclass(frozen=True)
class EndCause:
    """One thing that can end a job, and how it is recognised. Raises ValueError without a place in the order."""

    name: str
    help: str
    """What it recognises, and by what."""
    order: int
    """Causes are asked in this order, and the first that applies decides: what names a cause comes before what only
    names a symptom."""
    judge: Callable[[EndFacts], JudgedEnd | None]
    """None where the facts do not speak of this cause."""

    def __post_init__(self) -> None:
        if self.order <= 0:
            raise ValueError(f"end cause {self.name!r}: order {self.order} is not above 0")


@cache
def end_causes() -> Registry[EndCause]:
    """All causes; read when the first job ends, not before one starts."""
    return Registry(EndCause, _PACKAGE, GROUP, unique=_UNIQUE)


def judge_end(facts: EndFacts, otherwise: EndState) -> JudgedEnd:
    """How a job ended: by the first cause that applies, or as `otherwise` states."""
    for cause in sorted(_usable(), key=lambda cause: cause.order):
        if (found := _answer(cause, facts)) is not None:
            return found
    return JudgedEnd(otherwise)


def _answer(cause: EndCause, facts: EndFacts) -> JudgedEnd | None:
    """What a cause makes of the facts; None where it does not apply, or fails."""
    try:
        found = cause.judge(facts)
        return None if found is None else JudgedEnd(EndState(found.state), Attribution(found.attribution))
    except Exception as error:  # noqa: BLE001 - the code of another distribution may raise anything
        log.warning("the end cause %r failed: %s: %s", cause.name, type(error).__name__, error)
        return None


def _usable() -> Iterable[EndCause]:
    """All causes; ours alone where one of another distribution cannot be used."""
    try:
        return list(end_causes())
    except RegistryError as error:
        log.warning("only the end causes of pharoah are used: %s", error)
        return list(Registry(EndCause, _PACKAGE, _NO_GROUP, unique=_UNIQUE))
