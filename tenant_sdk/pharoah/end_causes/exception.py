"""An exception ends a rank: the words of its message say who caused it, where they name a cause. Where no rank has
reported one, the exit code may: a shell leaves with 127 where it does not find a program."""

from __future__ import annotations

from pharoah.end_causes._cause import EndCause, EndFacts, JudgedEnd
from pharoah_protocol.attribution import rules
from pharoah_protocol.vocabulary import EndState


def _judge(facts: EndFacts) -> JudgedEnd | None:
    # Not both: a script leaves with the code of its last command, whatever has failed before.
    status = None if facts.error else facts.status
    cause = rules().cause(EndState.FAILED, facts.error.splitlines(), status)
    if not facts.error and not cause.rule:
        return None
    return JudgedEnd(EndState.FAILED, cause.attribution)


EXCEPTION = EndCause(
    "exception",
    "who caused the exception that ended a rank, by the rules of attribution; without one, by the exit code",
    50,
    _judge,
)
