"""The kernel kills a job because memory is short: its own limit, or that of the machine."""

from __future__ import annotations

import signal

from pharoah.end_causes._cause import EndCause, EndFacts, JudgedEnd
from pharoah_protocol.attribution import Strength
from pharoah_protocol.vocabulary import Attribution, EndState


def _judge(facts: EndFacts) -> JudgedEnd | None:
    explained = facts.error_strength not in (None, Strength.SYMPTOM)
    # A launcher that ends the other ranks because one has failed may report their signal as its exit code.
    killed = facts.signal == signal.SIGKILL and not (facts.status > 0 and explained)
    vanished = facts.status == 0 and not facts.error
    # Many launchers leave with 1 when the kernel has killed one of their ranks, and the others report only that they
    # have lost it. A job that was asked to end may have survived the end of a helper before.
    unexplained = facts.terminated_at is None and not explained
    at_own_limit = facts.kills.own > 0 and facts.kills.at_own_limit > 0
    if at_own_limit and (killed or vanished or unexplained):
        return JudgedEnd(EndState.FAILED, Attribution.USER)  # it has asked for less than it uses
    if (killed or vanished) and (facts.kills.host or facts.kills.own):
        # The machine itself was full. Who filled it cannot be seen from inside the job.
        return JudgedEnd(EndState.FAILED)
    return None


OUT_OF_MEMORY = EndCause(
    "out-of-memory",
    "the kernel's out-of-memory killer, by the counts of the control group and of the machine",
    20,
    _judge,
)
