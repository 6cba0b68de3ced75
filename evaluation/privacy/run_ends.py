"""How runs of simulated archetypes end: the facts are made up, and judged by the rules that every sidecar has."""

from __future__ import annotations

import random
from collections.abc import Mapping
from functools import cache

from pharoah.end_causes import EndFacts, JudgedEnd, MemoryKills, judge_end
from pharoah_protocol.vocabulary import EndState, Resource

FACTS: Mapping[str, EndFacts] = {
    "bug": EndFacts(status=1, error="IndexError: list index out of range"),
    "memory of the device": EndFacts(
        status=1, error="torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB"
    ),
    "own memory limit": EndFacts(status=-9, kills=MemoryKills(own=1, at_own_limit=1, host=1)),
    "device": EndFacts(status=1, error="RuntimeError: CUDA error: uncorrectable ECC error encountered"),
    "disk": EndFacts(status=1, error="OSError: [Errno 5] Input/output error: '/data/shard'"),
    "full disk": EndFacts(status=1, error="OSError: [Errno 28] No space left on device"),
    "network": EndFacts(status=1, error="torch.distributed.DistBackendError: NCCL error: unhandled system error"),
    "unknown": EndFacts(status=-11),
    "asked to end": EndFacts(status=-15, terminated_at=0.0, ended_at=1.0),
}
"""What a machine shows of the end of a job."""
TYPICAL: Mapping[Resource, tuple[str, ...]] = {
    Resource.COMPUTE: ("bug", "memory of the device", "device"),
    Resource.MEMORY_CAPACITY: ("own memory limit", "memory of the device"),
    Resource.STORAGE: ("disk", "full disk", "bug"),
    Resource.NETWORK: ("network", "unknown"),
}
"""What jobs that are heavy on a resource fail of, most of the time."""
TYPICAL_RATIO = 0.8
UNFAILED: Mapping[EndState, float] = {
    EndState.OK: 0.8,
    EndState.CANCELLED: 0.1,
    EndState.TIME_LIMIT: 0.05,
    EndState.PREEMPTED: 0.05,
}
"""How runs end that do not fail: in shared clusters a tenth or more is cancelled."""


@cache
def judged_end(fact: str) -> JudgedEnd:
    """What leaves the machine of the end with these facts."""
    return judge_end(FACTS[fact], EndState.FAILED)


def draw_end(heavy: Resource, fails_ratio: float, chance: random.Random) -> JudgedEnd:
    """The end of one run."""
    if chance.random() >= fails_ratio:
        return JudgedEnd(chance.choices(list(UNFAILED), list(UNFAILED.values()))[0])
    typical = chance.random() < TYPICAL_RATIO
    return judged_end(chance.choice(TYPICAL[heavy] if typical else tuple(FACTS)))
