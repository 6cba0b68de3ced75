"""What a job on this node may see of the node's own signals, over the local socket: exact values, of what it uses.

Signals of the node, of its links and of its disks are for every job on it. Those of a device that processes compute on
are for the jobs of these processes: on a node that tenants share, nobody sees what others do with theirs.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from pharoah_protocol.agent_messages import SignalReading, SignalsAnswer
from pharoah_protocol.hazard_model import node_features
from pharoah_provider.agent.known_jobs import KnownJobs
from pharoah_provider.agent.signal_buffer import SignalBuffer
from pharoah_provider.agent.signals import AGENT_SIGNALS, TROUBLE_UNIT, AgentSignal
from pharoah_provider.agent.signals._nvml import gpu_users


@dataclass
class JobSignals:
    """Answers the jobs of one node from what its agent has read last."""

    buffer: SignalBuffer
    jobs: KnownJobs
    signals: Mapping[str, AgentSignal] = field(default_factory=lambda: AGENT_SIGNALS.entries)
    users: Callable[[], Mapping[str, set[int]]] = gpu_users
    """Processes by the device that they compute on."""

    def answer(self, asker: socket.socket) -> SignalsAnswer:
        """The signals that the process at the other end may see."""
        visible = self._visible(asker)
        return SignalsAnswer(
            tuple(reading for device in self.buffer.devices() if visible(device) for reading in self._readings(device))
        )

    def features(self, asker: socket.socket) -> dict[str, float]:
        """Features of the trouble signals that the process at the other end may see, by name."""
        visible = self._visible(asker)
        return node_features(
            {f"{one.series.signal}.{name}": value for name, value in one.features.items()}
            for one in self.buffer.features(
                lambda series: self.signals[series.signal].leaves_node and visible(series.device)
            )
        )

    def _visible(self, asker: socket.socket) -> Callable[[str], bool]:
        """Whether a device is shown: not one that only others compute on."""
        users = self.users()
        own = set(self.jobs.processes_of(asker)) if users else set()
        return lambda device: device not in users or bool(users[device] & own)

    def _readings(self, device: str) -> Iterator[SignalReading]:
        for name, value in self.buffer.newest(device).items():
            signal = self.signals[name]
            yield SignalReading(
                name=name,
                device=device,
                value=value,
                measures=signal.measures,
                resource=signal.resource,
                trouble=signal.unit == TROUBLE_UNIT,
            )
