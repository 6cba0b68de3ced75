"""The step clock: times steps, sends what it saw, and captures the operators of one step early in the run.

This runs in the training loop. Per step: one clock reading, one append, now and then one non-blocking send. No lock,
no thread, no synchronisation with a device.
"""

from __future__ import annotations

import logging
import time
from typing import Any

from pharoah._link import Link
from pharoah.memory import resident_bytes

log = logging.getLogger("pharoah")

CAPTURE_AFTER_STEP = 3
"""Distributed wrappers settle their buckets in step 2; capture comes after."""
SEND_EVERY_NS = 250_000_000


class StepClock:
    """Times the steps of one rank.

    A step is what lies between two calls of the first source seen: `session.step()` or an optimizer's step. Calls of
    the other source are ignored, so that a script that has both counts each step once.
    """

    def __init__(self, link: Link, rank: int) -> None:
        self._link = link
        self._rank = rank
        self._source = ""
        self._steps = 0
        self._last = 0
        self._sent = 0
        self._durations: list[int] = []
        self._recorder: Any = None

    @property
    def steps(self) -> int:
        return self._steps

    def tick(self, source: str, optimizer: Any = None) -> None:
        """A step is over. Never raises."""
        now = time.perf_counter_ns()
        try:
            if source != self._source:
                if self._source:
                    return
                self._source = source
            if self._last and self._recorder is None:
                self._durations.append(now - self._last)
            self._steps += 1
            if now - self._sent > SEND_EVERY_NS:
                self._send(now)
            if self._steps <= CAPTURE_AFTER_STEP + 1 and source == "optimizer":
                self._capture(optimizer)
                now = time.perf_counter_ns()
        except Exception as fault:  # noqa: BLE001 - hot path: ours must not reach the training loop
            log.debug("step clock: %s", fault)
        self._last = now

    def optimizer_begins(self) -> None:
        """Operators from here to the end of the step belong to the optimizer."""
        if self._recorder is not None:
            self._recorder.in_optimizer = True

    def flush(self) -> None:
        self._send(time.perf_counter_ns())

    def _send(self, now: int) -> None:
        if self._durations:
            self._link.tell("steps", rank=self._rank, durations=self._durations, resident=resident_bytes())
        self._durations = []
        self._sent = now

    def _capture(self, optimizer: Any) -> None:
        """On after step 3, off after step 4; skipped while the user has a dispatch mode of their own open."""
        import torch

        from pharoah import _capture

        if self._steps == CAPTURE_AFTER_STEP and torch._C._len_torch_dispatch_stack() == 0:
            self._recorder = _capture.Recorder()
            self._recorder.__enter__()
        elif self._recorder is not None:
            recorder, self._recorder = self._recorder, None
            recorder.__exit__(None, None, None)
            if not recorder.broken:
                size = _capture.parameter_bytes(optimizer)
                seen = _capture.fingerprint(recorder.records, size, optimizer)
                self._link.tell("capture", rank=self._rank, fingerprint=seen.to_json())
