"""Nodes, runs and reports as types. Nothing here knows SQL, protobuf or gRPC."""

from __future__ import annotations

from dataclasses import dataclass

from pharoah_learning.release import identity
from pharoah_protocol.windows import MEMORY_RATIO, STEP_RATIO, Window


@dataclass(frozen=True)
class Node:
    node: str
    ticket_key: bytes
    boot_id: str
    server_facts: tuple[str, ...]
    device_facts: tuple[str, ...]
    cpus: tuple[int, ...]
    version: str = ""

    @property
    def context_id(self) -> str:
        return identity(self.server_facts)

    @property
    def device_id(self) -> str:
        return identity(self.device_facts)


@dataclass(frozen=True)
class Run:
    run_id: bytes
    tenant: str
    node: str
    attempt: int
    ranks: int
    beside_job: bool
    limit_seconds: float


@dataclass(frozen=True)
class Report:
    """One window of one rank, relative to the run's own baseline."""

    row_number: int
    rank: int
    ended_at: float
    span_seconds: float
    step_ratio: float
    memory_ratio: float

    @property
    def window(self) -> Window:
        """The report as learning and scoring see it."""
        return Window(at_seconds=self.ended_at, values={STEP_RATIO: self.step_ratio, MEMORY_RATIO: self.memory_ratio})
