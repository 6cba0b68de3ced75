"""Faults for jobs under watch: real processes, limits and allocations, each with a ladder of doses."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evaluation.pages import ROOT
from pharoah_benchmarks.faults import FAULTS, Place, Schedule, beside_command
from pharoah_protocol.node_profile import NodeProfile, command_under
from pharoah_protocol.vocabulary import Resource
from pharoah_system.process_family import descendants
from tests.harness.jobs import Job, start_cpu_stressor
from tests.harness.site import Site

SCRIPT = ROOT / "evaluation" / "scripts" / "train_watched.py"
CONTROL_GROUPS = Path("/sys/fs/cgroup")
"""Control groups of version 1: a folder for each controller."""
USUAL_SECONDS = 75.0
"""After so many seconds of steps the usual step is known: twelve windows of 5 s, and what they need to be complete."""
EARLY_SECONDS = 10.0
"""For faults that are not seen by comparing steps with those before."""
BURST_EVERY_SECONDS = 2.5
"""About fifty steps of the script."""


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One planted fault."""

    kind: str
    dose: float
    resource: Resource
    beside: Callable[[Started, float], AbstractContextManager[None]] | None = None
    """What acts on the job from outside, with the dose."""
    options: tuple[str, ...] = ()
    """Options of the script."""
    checkpoints: bool = False
    """Whether the job writes and syncs after each step."""
    after_seconds: float = USUAL_SECONDS
    """When it begins, after the first steps of the job."""
    ranks: int = 1
    alone: bool = False
    """Whether it takes both cores, so that no other job may run."""


@dataclass
class Started:
    """A job that runs."""

    site: Site
    node: str
    folder: Path
    fault: Fault | None
    job: Job
    _ranks: list[int] = field(default_factory=list)

    @property
    def cpus(self) -> list[int]:
        cpus: list[int] = self.site.profiles[self.node]["cpus"]
        return cpus

    def rank_processes(self) -> list[int]:
        """The processes of the ranks, in the order in which they were started."""
        if not self._ranks:
            for pid in sorted(descendants(self.job.process.pid)):
                words = _command_line(pid)
                if any(word.endswith(SCRIPT.name) for word in words) and "torch.distributed.run" not in words:
                    self._ranks.append(pid)
        return self._ranks

    def alerts(self) -> list[dict[str, Any]]:
        """All alerts that were confirmed."""
        path = self.folder / "alerts.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return [alert for alert in map(json.loads, lines) if alert["state"] == "confirmed"]


def _command_line(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return []


@contextmanager
def _stressor(started: Started, dose: float, ramp: float = 0.0) -> Iterator[None]:
    """A copy loop on the job's core; steps take `dose` times as long."""
    with _ended(start_cpu_stressor(started.cpus, 1 - 1 / dose, ramp)):
        yield


@contextmanager
def _slow_ramp(started: Started, dose: float) -> Iterator[None]:
    with _stressor(started, dose, 30.0):
        yield


@contextmanager
def _beside(started: Started, dose: float, name: str, cpus: Sequence[int]) -> Iterator[None]:
    """A fault of the catalogue that acts beside a job."""
    schedule = Schedule(dose=dose, onset_seconds=0.0, ramp_seconds=0.0, began=time.monotonic())
    place = Place(schedule=schedule, pid=os.getpid(), folder=started.folder, limit_seconds=600.0)
    command = command_under(NodeProfile(cpus=tuple(cpus)), beside_command(FAULTS[name], place))
    with _ended(subprocess.Popen(command, stdin=subprocess.DEVNULL)):
        yield


@contextmanager
def _bandwidth(started: Started, dose: float) -> Iterator[None]:
    """`dose` gigabytes per second are copied on the other core."""
    others = sorted(os.sched_getaffinity(0) - set(started.cpus))
    with _beside(started, dose, "memory_bandwidth", others):
        yield


@contextmanager
def _bursts(started: Started, dose: float) -> Iterator[None]:
    """A process of higher priority takes the job's core for `dose` seconds, again and again: one step of about fifty is
    many times as long."""
    program = (
        "import os, sys, time\n"
        "os.sched_setaffinity(0, {int(sys.argv[1])})\n"
        "os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))\n"
        "while True:\n"
        "    end = time.monotonic() + float(sys.argv[2])\n"
        "    while time.monotonic() < end: pass\n"
        f"    time.sleep({BURST_EVERY_SECONDS} - float(sys.argv[2]))"
    )
    with _ended(subprocess.Popen([sys.executable, "-c", program, str(started.cpus[0]), str(dose)])):
        yield


@contextmanager
def _filling(started: Started, dose: float) -> Iterator[None]:
    """A file in the job's file system grows by `dose` bytes per second."""
    program = (
        "import sys, time\n"
        "with open(sys.argv[1], 'wb') as file:\n"
        "    while True:\n"
        "        file.write(b'x' * int(float(sys.argv[2]) / 4)); file.flush(); time.sleep(0.25)"
    )
    grown = started.folder / "disk" / "grown"
    with _ended(subprocess.Popen([sys.executable, "-c", program, str(grown), str(dose)], stderr=subprocess.DEVNULL)):
        yield
    grown.unlink(missing_ok=True)


@contextmanager
def _throttled(started: Started, dose: float) -> Iterator[None]:
    """The last rank gets 1/`dose` of a core, by the kernel's own limit."""
    limits = {"cpu.cfs_period_us": "20000", "cpu.cfs_quota_us": str(int(20000 / dose))}
    with _limited(started, "cpu", limits):
        yield


@contextmanager
def _slow_disk(started: Started, dose: float) -> Iterator[None]:
    """The job may write `dose` bytes per second to its disk, by the kernel's own limit."""
    device = started.folder.stat().st_dev
    limits = {"blkio.throttle.write_bps_device": f"{os.major(device)}:{os.minor(device)} {int(dose)}"}
    with _limited(started, "blkio", limits):
        yield


@contextmanager
def _limited(started: Started, controller: str, limits: Mapping[str, str]) -> Iterator[None]:
    """The last rank is in a control group of its own. It ends with the group, which must be empty to be removed."""
    group = CONTROL_GROUPS / controller / f"pharoah-evaluation-{started.node}"
    group.mkdir(exist_ok=True)  # one that an evaluation has left that was killed
    try:
        for file, limit in limits.items():
            (group / file).write_text(limit)
        (group / "cgroup.procs").write_text(str(started.rank_processes()[-1]))
        yield
        with contextlib.suppress(OSError):
            (CONTROL_GROUPS / controller / "cgroup.procs").write_text(str(started.rank_processes()[-1]))
    finally:
        started.job.process.terminate()
        started.job.wait()
        group.rmdir()


@contextmanager
def _slow_link(_: Started, dose: float) -> Iterator[None]:
    """`dose` megabits per second pass between the ranks: packets wait in a queue. This needs root."""
    shaper = ["dev", "lo", "root"]
    limits = ["tbf", "rate", f"{dose:g}mbit", "burst", "128kb", "latency", "100ms"]
    subprocess.run(["tc", "qdisc", "add", *shaper, *limits], check=True)
    try:
        yield
    finally:
        subprocess.run(["tc", "qdisc", "del", *shaper], check=True)


@contextmanager
def _stopped(started: Started, _: float) -> Iterator[None]:
    rank = started.rank_processes()[-1]
    os.kill(rank, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(rank, signal.SIGCONT)


@contextmanager
def _ended(process: subprocess.Popen[bytes]) -> Iterator[None]:
    try:
        yield
    finally:
        process.kill()
        process.wait()


def _script(illness: str, dose: float) -> tuple[str, ...]:
    return ("--illness", illness, "--dose", str(dose))


def faults(quick: bool) -> list[Fault]:
    """All faults: each kind with its ladder of doses, or with one dose."""
    compute, storage, memory = Resource.COMPUTE, Resource.STORAGE, Resource.MEMORY_CAPACITY
    bandwidth = Resource.MEMORY_BANDWIDTH
    rank: dict[str, Any] = {"resource": compute, "ranks": 2, "alone": True}
    ladders = [
        [
            Fault(kind="cpu_share", dose=ratio, resource=compute, beside=_stressor)
            for ratio in (1.5, 1.15, 1.2, 1.35, 2.0)
        ],
        [Fault(kind="cpu_ramp", dose=ratio, resource=compute, beside=_slow_ramp) for ratio in (1.5, 1.2, 1.3, 2.0)],
        [Fault(kind="rare_steps", dose=seconds, resource=compute, beside=_bursts) for seconds in (0.5, 0.35, 0.7, 1.0)],
        [
            Fault(kind="leak", dose=rate, resource=memory, options=_script("leak", rate))
            for rate in (4e6, 1e6, 2e6, 8e6)
        ],
        [Fault(kind="disk_filling", dose=rate, resource=storage, beside=_filling) for rate in (4e5, 2e5, 3e5, 6e5)],
        [
            Fault(kind="loader", dose=pause, resource=storage, options=_script("loader", pause))
            for pause in (0.12, 0.05, 0.08, 0.2)
        ],
        [
            Fault(kind="memory_bandwidth", dose=gigabytes, resource=bandwidth, beside=_bandwidth, alone=True)
            for gigabytes in (16.0, 8.0, 12.0, 24.0)
        ],
        [
            Fault(kind="disk_slow", dose=rate, resource=storage, beside=_slow_disk, checkpoints=True)
            for rate in (2e7, 4e7, 1e7, 6e7)
        ],
        [
            Fault(kind="link_slow", dose=rate, beside=_slow_link, **{**rank, "resource": Resource.NETWORK})
            for rate in (400.0, 800.0, 200.0, 600.0)
        ],
        [Fault(kind="throttled_rank", dose=ratio, beside=_throttled, **rank) for ratio in (2.0, 1.6, 3.0, 5.0)],
        [
            Fault(kind="throttled_from_start", dose=ratio, beside=_throttled, after_seconds=EARLY_SECONDS, **rank)
            for ratio in (3.0, 2.0, 5.0)
        ],
        [Fault(kind="stopped_rank", dose=1.0, beside=_stopped, after_seconds=EARLY_SECONDS, **rank)] * 4,
    ]
    return [fault for ladder in ladders for fault in (ladder[:1] if quick else ladder)]
