"""What a job on this node may see of the node's own signals, over the local socket: exact values, of what it uses.

Signals of the node, of its links and of its disks are for every job on it. Those of a device that processes compute on
are for the jobs of these processes: on a node that tenants share, nobody sees what others do with theirs.
"""

from __future__ import annotations

import logging
import re
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

from pharoah_protocol.agent_messages import SignalReading, SignalsAnswer
from pharoah_protocol.hazard_model import node_features
from pharoah_provider.agent.known_jobs import KnownJobs, Owner, owner_of
from pharoah_provider.agent.shared_question import SharedQuestion
from pharoah_provider.agent.signal_buffer import SignalBuffer
from pharoah_provider.agent.signals import AGENT_SIGNALS, TROUBLE_UNIT, AgentSignal
from pharoah_provider.agent.signals._nvml import gpu_users
from pharoah_provider.agent.xid_events import ADDRESS_PREFIX

log = logging.getLogger("pharoah.agent")

MIN_MINUTES = 60
"""Minutes that a signal was measured for before a forecast uses it: the model is learned from hours."""
USERS_HOLD_SECONDS = 1.0
"""How long it is known who computes on a device, and which processes a job has: each sidecar asks every two seconds,
and they share the answers. Whoever asks without a pause makes the agent ask no more often."""
_GPU = re.compile(r"gpu(?![0-9]+[a-z])")
"""Begins the name of a GPU, from NVML and from an exporter. The network card beside a GPU may have a name such as
`gpu0rdma0`."""


@dataclass(frozen=True)
class _Access:
    """What one job may see."""

    users: Mapping[str, set[int]] | None
    """Processes by the device that they compute on; None while the driver does not say."""
    own: set[int]
    """The processes of the job."""

    def shows(self, device: str) -> bool:
        """Whether a device is shown: not one that only others compute on."""
        if self.users is None:
            return not device
        if device in self.users:
            return bool(self.users[device] & self.own)
        # Nobody knows who computes on any other GPU: it has left the bus, or only an exporter answers.
        return not device.startswith(ADDRESS_PREFIX) and not _GPU.match(device)

    def has_alone(self, device: str) -> bool:
        """Whether nobody else computes on a device: what is used there is used by this job."""
        users = (self.users or {}).get(device, set())
        return bool(users) and users <= self.own


@dataclass
class JobSignals:
    """Answers the jobs of one node from what its agent has read last. A driver that takes its time delays the answers
    and nothing else."""

    buffer: SignalBuffer
    jobs: KnownJobs
    signals: Mapping[str, AgentSignal] = field(default_factory=lambda: AGENT_SIGNALS.entries)
    users: Callable[[], Mapping[str, set[int] | None]] = gpu_users
    """Processes by the device that they compute on; None for a device that does not say."""
    clock: Callable[[], float] = time.monotonic
    _known: dict[str, set[int]] = field(default_factory=dict, init=False)
    """The processes that each device has named last."""
    _problem: str = field(default="", init=False)
    """Why the driver did not answer the last time; empty where it did."""
    _users: SharedQuestion[Mapping[str, set[int]]] = field(init=False)
    _processes: dict[Owner, SharedQuestion[set[int]]] = field(default_factory=dict, init=False)
    """The processes of each job that has asked within the last second."""

    def __post_init__(self) -> None:
        self._users = SharedQuestion(self._ask, USERS_HOLD_SECONDS, self.clock)

    async def answer(self, asker: socket.socket) -> SignalsAnswer:
        """The signals that the process at the other end may see."""
        access = await self._access(asker)
        devices = [device for device in self.buffer.devices() if access.shows(device)]
        return SignalsAnswer(
            tuple(reading for device in devices for reading in self._readings(device, access.has_alone(device)))
        )

    async def features(self, asker: socket.socket) -> dict[str, float]:
        """Features of the trouble signals that the process at the other end may see, by name.

        A signal that was not measured for an hour yet has none: the hazard model knows shares of hours, and trouble in
        one of two minutes would be half of the time.
        """
        access = await self._access(asker)
        return node_features(
            {f"{one.series.signal}.{name}": value for name, value in one.features.items()}
            for one in self.buffer.features(
                lambda series: self.signals[series.signal].leaves_node and access.shows(series.device)
            )
            if one.minutes >= MIN_MINUTES
        )

    async def _access(self, asker: socket.socket) -> _Access:
        """What the process at the other end may see."""
        try:
            users = await self._users.answer()
        except Exception as error:  # noqa: BLE001 - a driver: what nobody knows is shown to nobody
            self._note(f"{type(error).__name__}: {error}")
            return _Access(None, set())
        self._note("")
        return _Access(users, await self._own(asker) if users else set())

    def _note(self, problem: str) -> None:
        """Log that the driver fails, or answers again: once, because each sidecar asks every two seconds."""
        if problem != self._problem:
            log.warning("the driver %s", f"does not say who computes: {problem}" if problem else "says who computes")
        self._problem = problem

    async def _own(self, asker: socket.socket) -> set[int]:
        """The processes of the job of the process at the other end."""
        if (owner := owner_of(asker)) is None:
            return set()
        if owner not in self._processes:
            self._processes = {other: question for other, question in self._processes.items() if question.holds}
            ask = partial(self.jobs.processes_of, owner)
            self._processes[owner] = SharedQuestion(ask, USERS_HOLD_SECONDS, self.clock)
        return await self._processes[owner].answer()

    def _ask(self) -> Mapping[str, set[int]]:
        """Processes by device. A device that does not answer, as one that is lost, has those that it named last, so
        that its job still sees it and others do not."""
        answered = self.users().items()
        self._known = self._known | {
            device: self._known.get(device, set()) if processes is None else processes for device, processes in answered
        }
        return self._known

    def _readings(self, device: str, alone: bool) -> Iterator[SignalReading]:
        for name, value in self.buffer.newest(device).items():
            signal = self.signals[name]
            yield SignalReading(
                name=name,
                device=device,
                value=value,
                measures=signal.measures,
                resource=signal.resource,
                trouble=signal.unit == TROUBLE_UNIT,
                used_share=signal.used_share and alone,
            )
