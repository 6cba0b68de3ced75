"""The kernel kills a job because memory is short: its own limit, or that of the machine."""

from __future__ import annotations

import signal

from pharoah.end_causes._cause import EndCause, EndFacts, JudgedEnd
from pharoah_protocol.vocabulary import Attribution, EndState


def _judge(facts: EndFacts) -> JudgedEnd | None:
    killed = facts.signal == signal.SIGKILL or (facts.status == 0 and not facts.error)
    if not killed:
        return None
    if facts.kills.own and facts.kills.at_own_limit:
        return JudgedEnd(EndState.FAILED, Attribution.USER)  # it has asked for less than it uses
    if facts.kills.host or facts.kills.own:
        # The machine itself was full. Who filled it cannot be seen from inside the job.
        return JudgedEnd(EndState.FAILED)
    return None


OUT_OF_MEMORY = EndCause(
    "out-of-memory",
    "the kernel's out-of-memory killer, by the counts of the control group and of the machine",
    20,
    _judge,
)
