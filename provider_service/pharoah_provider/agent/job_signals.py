"""What a job on this node may see of the node's own signals, over the local socket: exact values, of what it uses.

Signals of the node itself are for every job on it. Those of a device are for the jobs whose processes compute on it: on
a node that tenants share, nobody sees what others do with theirs.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pharoah_protocol.local_messages import SignalReading, SignalsAnswer
from pharoah_provider.agent.known_jobs import KnownJobs
from pharoah_provider.agent.signals._nvml import gpu_users
from pharoah_provider.agent.telemetry import Sample, Telemetry

FRESH_SECONDS = 1.0
"""A sample that is no older serves all jobs that ask: reading a device again would not show more."""


@dataclass
class JobSignals:
    """Answers the jobs of one node."""

    telemetry: Telemetry
    jobs: KnownJobs
    users: Callable[[], Mapping[str, set[int]]] = gpu_users
    """Processes by device."""
    clock: Callable[[], float] = time.monotonic
    _newest: list[Sample] = field(default_factory=list, init=False)
    _sampled_at: float | None = field(default=None, init=False)

    def answer(self, asker: socket.socket) -> SignalsAnswer:
        """The signals that the process at the other end may see."""
        now = self.clock()
        if self._sampled_at is None or now - self._sampled_at >= FRESH_SECONDS:
            self._newest, self._sampled_at = self.telemetry.sample(stays=True), now
        signals = {signal.name: signal for signal in self.telemetry.signals}
        seen = self._devices(asker) if any(sample.device for sample in self._newest) else set()
        return SignalsAnswer(
            tuple(
                SignalReading(
                    name=name,
                    device=sample.device,
                    value=value,
                    measures=signals[name].measures,
                    resource=signals[name].resource,
                    trouble=signals[name].trouble,
                )
                for sample in self._newest
                if not sample.device or sample.device in seen
                for name, value in sample.values.items()
            )
        )

    def _devices(self, asker: socket.socket) -> set[str]:
        """The devices on which processes of the asker's job compute."""
        own = set(self.jobs.processes_of(asker))
        return {device for device, processes in self.users().items() if processes & own}
