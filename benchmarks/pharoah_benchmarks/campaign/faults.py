"""Real degradation: a process that takes a core's time away, and memory that is not given back."""

from __future__ import annotations

import os
import subprocess
import sys
import time

from pharoah_protocol.own_python import NEUTRAL_FOLDER, own_environment, own_module
from pharoah_protocol.parent_process import end_with_parent

_MODULE = "pharoah_benchmarks.campaign.faults"
"""This module, also where it is `__main__`."""

PERIOD_SECONDS = 0.02
"""Debt of CPU time a CPU stressor may build up; also how finely its share is spread."""


def start_cpu_stressor(
    delay_seconds: float, ramp_seconds: float, strength: float, seconds: float
) -> subprocess.Popen[bytes]:
    """A copy loop on the CPUs this process may use. `strength` is the share of CPU time it takes, 0-1.

    A job that has the core to itself otherwise becomes 1/(1 - strength) times slower, up to the half that a fair
    scheduler gives each of two.
    """
    arguments = [str(os.getpid()), str(delay_seconds), str(ramp_seconds), str(strength), str(seconds)]
    return subprocess.Popen(
        own_module(_MODULE, *arguments),
        stdin=subprocess.DEVNULL,
        env=own_environment(os.environ),
        cwd=NEUTRAL_FOLDER,
    )


def _stress(delay_seconds: float, ramp_seconds: float, strength: float, seconds: float) -> None:
    source, target = bytearray(4 << 20), bytearray(4 << 20)
    time.sleep(delay_seconds)
    began = last = time.monotonic()
    owed = 0.0
    while (now := time.monotonic()) - began < seconds:
        share = strength * (min(1.0, (now - began) / ramp_seconds) if ramp_seconds else 1.0)
        # CPU time is what is taken from the job, so that is what is counted; a debt that cannot be had is let go.
        owed = min(owed + share * (now - last), PERIOD_SECONDS)
        last = now
        before = time.process_time()
        while time.process_time() - before < owed:
            target[:] = source
        owed -= time.process_time() - before
        if owed < PERIOD_SECONDS / 2 and strength < 1:
            time.sleep(PERIOD_SECONDS / 4)


class Leak:
    """Memory that grows by `strength` bytes a second; `grow` is called once a step and may raise MemoryError."""

    def __init__(self, start_seconds: float, strength: float) -> None:
        self._start, self._strength = start_seconds, strength
        self._held: list[bytearray] = []
        self._size = 0

    def grow(self, elapsed_seconds: float) -> None:
        wanted = int(max(0.0, elapsed_seconds - self._start) * self._strength)
        if wanted > self._size:
            self._held.append(bytearray(b"\x01") * (wanted - self._size))
            self._size = wanted


if __name__ == "__main__":
    end_with_parent(int(sys.argv[1]))
    _stress(*(float(argument) for argument in sys.argv[2:]))
