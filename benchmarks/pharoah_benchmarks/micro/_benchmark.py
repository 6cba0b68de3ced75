"""The description of a micro-benchmark."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from pharoah_benchmarks.micro._kernel import Kernel
from pharoah_benchmarks.micro._order import MIN_DUTY
from pharoah_benchmarks.micro._place import Place
from pharoah_protocol.vocabulary import DeviceKind, Resource

_NAME = re.compile("[a-z][a-z0-9_]*")
CORE_FLOPS, CORE_BYTES_PER_SECOND = 2e12, 1e12
"""What no core reaches. Two units for products of 16 float32 numbers at 6 GHz do 384 GFLOP/s, which is the most that a
core with AVX-512 can; a core moves less than 200 GB/s, also from and to its cache."""


class Placement(StrEnum):
    """Where a micro-benchmark may run."""

    EXCLUSIVE = "exclusive"
    """Only on a node without a job."""
    BESIDE_JOB = "beside_job"
    """Also beside a job whose tenant consents."""


class Need(StrEnum):
    """What a micro-benchmark needs beyond a node with its device."""

    PARTNER = "partner"
    """A second node that runs it at the same time."""
    REMOTE_FOLDER = "remote_folder"
    """A folder on remote storage, which the operator names."""


@dataclass(frozen=True, kw_only=True)
class Noise:
    """How much two healthy nodes differ from one validation to the next."""

    log_ratio_sd: float
    """Standard deviation of log(own ratio / peer ratio); 0.06 is 6 %."""
    source: str
    """The command that measured it, or a reference."""


@dataclass(frozen=True, kw_only=True)
class MicroBenchmark:
    """One micro-benchmark. Raises ValueError that names the benchmark and the parameter."""

    name: str
    """Stored with every result, so it never changes its meaning."""
    measures: str
    resource: Resource
    device: DeviceKind
    dtype: str
    size: int
    """What one repeat works on, in the unit that `measures` names."""
    noise: Noise
    placement: Placement
    repeats: int
    limit_seconds: float
    """Time for all repeats together; fewer are made when it is over."""
    build: Callable[[Place], Kernel]
    """Makes the kernel, with its inputs. May import torch."""
    selected: bool = True
    """Whether rounds of campaigns and of monitoring run it without being asked for it by name."""
    duty: float = 1.0
    """The share of the time in which it may work beside a job; it sleeps for the rest."""
    keeps_inputs: bool = False
    """Whether the process that measures keeps the kernel from one order to the next: making the inputs is work without
    a pause, and of more than the cache holds it takes longer than a round measures. Not for GPUs, and not for kernels
    that check their answers, which have those of one order."""
    need: Need | None = None
    """None where a node with the device is enough."""
    fastest_seconds: float = 0.0
    """No core does one repeat in less. 0 where that is not stated; then no sidecar is asked for it."""

    def __post_init__(self) -> None:
        problems = {
            "name": not _NAME.fullmatch(self.name),
            "resource": not isinstance(self.resource, Resource),
            "device": not isinstance(self.device, DeviceKind),
            "placement": not isinstance(self.placement, Placement) or self._takes_memory_of_a_job,
            "size": self.size < 1,
            "noise": not 0 < self.noise.log_ratio_sd < 10 or not self.noise.source,
            "repeats": self.repeats < 1,
            "duty": not MIN_DUTY <= self.duty <= 1,
            "keeps_inputs": self.keeps_inputs and self.device is not DeviceKind.CPU,
            "need": self.need is not None and not isinstance(self.need, Need),
            "limit_seconds": not 0 < self.limit_seconds < float("inf"),
            "fastest_seconds": not 0 <= self.fastest_seconds < self.limit_seconds,
        }
        for parameter, wrong in problems.items():
            if wrong:
                raise ValueError(f"micro-benchmark {self.name!r}: {parameter}: {getattr(self, parameter)!r} is invalid")

    @property
    def _takes_memory_of_a_job(self) -> bool:
        """The memory of a GPU is the job's: what another process takes of it, the job cannot have a moment later."""
        return self.placement is Placement.BESIDE_JOB and self.device is not DeviceKind.CPU

    @property
    def suits_guests(self) -> bool:
        """Whether the sidecar of a job may run it: beside the job, alone, and with a stated bound."""
        return self.placement is Placement.BESIDE_JOB and self.need is None and self.fastest_seconds > 0
