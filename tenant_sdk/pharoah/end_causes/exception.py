"""An exception ends a rank: the words of its message say who caused it, where they name a cause."""

from __future__ import annotations

from pharoah.end_causes._cause import EndCause, EndFacts, JudgedEnd
from pharoah_protocol.attribution import rules
from pharoah_protocol.vocabulary import EndState


def _judge(facts: EndFacts) -> JudgedEnd | None:
    if not facts.error:
        return None
    return JudgedEnd(EndState.FAILED, rules().cause(EndState.FAILED, facts.error.splitlines()).attribution)


EXCEPTION = EndCause("exception", "who caused the exception that ended a rank, by the rules of attribution", 50, _judge)
