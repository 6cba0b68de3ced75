"""A signal ends a job: one that asks it to end cancels it, and others show what went wrong."""

from __future__ import annotations

import signal

from pharoah.end_causes._cause import EndCause, EndFacts, JudgedEnd
from pharoah_protocol.vocabulary import Attribution, EndState

_ENDS = {
    signal.SIGTERM: JudgedEnd(EndState.CANCELLED),
    signal.SIGINT: JudgedEnd(EndState.CANCELLED),
    signal.SIGHUP: JudgedEnd(EndState.CANCELLED),
    signal.SIGQUIT: JudgedEnd(EndState.CANCELLED),
    signal.SIGXCPU: JudgedEnd(EndState.TIME_LIMIT),
    signal.SIGXFSZ: JudgedEnd(EndState.FAILED, Attribution.USER),
    # A processor without an instruction that a library was built for.
    signal.SIGILL: JudgedEnd(EndState.FAILED, Attribution.SOFTWARE),
}
"""Signals that name a cause (signal(7)). SIGSEGV, SIGBUS, SIGABRT and SIGFPE name a symptom: broken memory, a library
and the job's own code look the same."""


def _judge(facts: EndFacts) -> JudgedEnd | None:
    if facts.terminated_at is not None and not facts.is_own_error:
        # The exit code need not show the signal: torchrun makes an exception of it, and leaves with 1.
        return JudgedEnd(EndState.CANCELLED)
    if facts.status > 0 and facts.is_own_error:
        # A launcher ends the other ranks with signals when one has failed, and may report theirs (srun(1), -K). So
        # may a shell whose job was ended because a rank had failed.
        return None
    return _ENDS.get(signal.Signals(facts.signal)) if facts.signal in set(signal.Signals) else None


SIGNALS = EndCause(
    "signals", "who asked the job to end, or what it did, by the signal that it was sent or that ended it", 40, _judge
)
