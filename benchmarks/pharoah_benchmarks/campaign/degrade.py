"""Real degradation: a process that takes a core's time away, and memory that is not given back."""

from __future__ import annotations

import subprocess
import sys
import time

PERIOD_SECONDS = 0.02


def start_hog(delay_seconds: float, ramp_seconds: float, strength: float, seconds: float) -> subprocess.Popen[bytes]:
    """A copy loop on the CPUs this process may use. `strength` is the share of each 20 ms it wants, 0-1."""
    arguments = [str(delay_seconds), str(ramp_seconds), str(strength), str(seconds)]
    return subprocess.Popen([sys.executable, "-m", __name__, *arguments], stdin=subprocess.DEVNULL)


def _hog(delay_seconds: float, ramp_seconds: float, strength: float, seconds: float) -> None:
    source, target = bytearray(4 << 20), bytearray(4 << 20)
    time.sleep(delay_seconds)
    began = time.monotonic()
    while (elapsed := time.monotonic() - began) < seconds:
        share = strength * (min(1.0, elapsed / ramp_seconds) if ramp_seconds else 1.0)
        # Wall time, not CPU time: beside a job a hog that wants all of it gets half.
        until = time.perf_counter() + share * PERIOD_SECONDS
        while time.perf_counter() < until:
            target[:] = source
        time.sleep(max(0.0, (1 - share) * PERIOD_SECONDS))


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
    _hog(*(float(argument) for argument in sys.argv[1:]))
