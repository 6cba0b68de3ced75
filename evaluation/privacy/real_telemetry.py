"""What a real agent sends while real jobs of different kinds run on its node, and what the times of its messages show.

A site of real processes has one node. Jobs that are heavy on processors, memory, a disk or the network run on its core,
one after the other in random order, and an idle one. The provider is the one that is shipped and writes down each
message with the time at which it came. This machine has no GPU and no fabric: their bits are in `simulated_nodes`.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean, pstdev
from typing import NamedTuple

import numpy as np

from evaluation.figures import OUTPUT, ROOT, Figures
from evaluation.privacy.guessing import FOLDS, Advantage, advantage
from evaluation.privacy.watching_provider import CONTENTS, received
from pharoah_protocol.node_profile import NodeProfile, command_under
from pharoah_protocol.v1 import AgentMessage
from pharoah_provider.services.agent import TELEMETRY_PERIOD_SECONDS
from tests.harness.site import Site, running_site
from tests.harness.until import wait_until

FOLDER = OUTPUT / "telemetry"
SCRIPT = ROOT / "evaluation" / "scripts" / "train_heavy.py"
KINDS = ("idle", "compute", "memory", "storage", "network")
NODE = "n1"
WINDOW_SAMPLES, WINDOWS = 4, 4
"""Samples that an attacker sees of one job, and how often."""
LARGEST_ADVANTAGE = 0.05
"""The bound of what a provider may learn, as in `report_leakage`. Jobs are few here: on random numbers the attackers
are above it in about one run of six, and in one of three with two windows of each job."""
READY_SECONDS, SETTLED_SECONDS = 60.0, 3.0
MEMORY_GROUPS = Path("/sys/fs/cgroup/memory")
"""Control groups of version 1."""
LIMIT_BYTES = 400 << 20
"""Well below what the job that thrashes wants to keep; how much it waits depends on how fast the disk is."""
THRASHING_SECONDS = 60.0
"""After 21 s of waiting all the time, the kernel's average of a minute is above 30 %."""
PRESSURE = Path("/proc/pressure")


class Sent(NamedTuple):
    """One message with telemetry."""

    came: float
    """Monotonic seconds, by the provider's clock."""
    sampled_at: float
    """Unix seconds, as the agent states them."""
    raised: frozenset[str]


@dataclass(frozen=True)
class Observed:
    """One job, and what was sent while it ran."""

    kind: str
    sent: Sequence[Sent]
    memory_waiting_ratio: float
    """The share of the time in which some task of this machine waited for memory."""
    storage_waiting_ratio: float

    def windows(self) -> Iterator[list[float]]:
        """The numbers that an attacker has of each window."""
        for number in range(WINDOWS):
            window = self.sent[number * WINDOW_SAMPLES : (number + 1) * WINDOW_SAMPLES]
            yield _numbers(window)


def measure(figures: Figures, seed: int, quick: bool) -> None:
    """The bits of each kind of job, and how well kinds are recognised by the times of messages."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    log, chance = FOLDER / "messages", random.Random(seed)
    program = ("-m", "evaluation.privacy.watching_provider", str(log), CONTENTS)
    profiles = {NODE: {"cpus": [min(os.sched_getaffinity(0))], "threads": 1}}
    with running_site(FOLDER / "site", profiles, provider_program=program) as site:
        rounds = [_round(site, log, chance) for _ in range(1 if quick else FOLDS)]
        thrashing = _thrashing(site, log)
    observed = [one for some in rounds for one in some]
    _bits(figures, observed, thrashing)
    if quick:
        figures.skip("provider_advantage_telemetry_times", "needs several jobs of each kind")
    else:
        _times(figures, rounds)


def _round(site: Site, log: Path, chance: random.Random) -> list[Observed]:
    """Each kind once; the result is in the order of KINDS."""
    order = chance.sample(KINDS, len(KINDS))
    found = {kind: _observed(site, log, kind, _seconds(WINDOW_SAMPLES * WINDOWS)) for kind in order}
    return [found[kind] for kind in KINDS]


def _seconds(samples: int) -> float:
    return (samples + 1) * TELEMETRY_PERIOD_SECONDS


def _observed(site: Site, log: Path, kind: str, seconds: float, prefix: Sequence[str] = ()) -> Observed:
    folder = FOLDER / "job"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    ready = folder / "ready"
    words = [sys.executable, str(SCRIPT), kind, "--folder", str(folder), "--ready", str(ready)]
    command = command_under(NodeProfile(cpus=tuple(site.profiles[NODE]["cpus"])), [*words, "--seconds", "600"])
    with (folder / "output").open("wb") as output:
        job = site.scope.own(
            subprocess.Popen([*prefix, *command], start_new_session=True, stdout=output, stderr=output)
        )
    try:
        wait_until(ready.exists, f"the first step of {kind}", READY_SECONDS)
        time.sleep(SETTLED_SECONDS)
        began, before = time.monotonic(), _waited()
        time.sleep(seconds)
        ended, after = time.monotonic(), _waited()
    finally:
        os.killpg(job.pid, signal.SIGKILL)  # both ranks
        job.wait()
    sent = [one for one in _telemetry(log) if began <= one.came < ended]
    shares = {name: (after[name] - before[name]) / (ended - began) for name in before}
    print(f"  {kind}: waits for memory {shares['memory']:.1%}, for disks {shares['io']:.1%}", flush=True)
    return Observed(kind, sent, shares["memory"], shares["io"])


def _telemetry(log: Path) -> Iterator[Sent]:
    for message in received(log):
        if message.method != "Connect":
            continue
        rows = AgentMessage.FromString(message.content).telemetry
        if rows.metric:
            raised = frozenset(name for name, value in zip(rows.metric, rows.value, strict=True) if value)
            yield Sent(message.came, rows.sampled_at[0], raised)


def _waited() -> dict[str, float]:
    """Seconds since the boot in which some task waited (docs.kernel.org/accounting/psi.html)."""
    return {
        name: int((PRESSURE / name).read_text().partition("\n")[0].rpartition("total=")[2]) / 1e6
        for name in ("memory", "io")
    }


def _thrashing(site: Site, log: Path) -> Observed | None:
    """A job under a limit of memory that is too low for it; None where control groups cannot be made."""
    group = MEMORY_GROUPS / "pharoah-thrashing"
    try:
        with _memory_limit(group):
            prefix = ["sh", "-c", 'echo $$ > "$0/cgroup.procs" && exec "$@"', str(group)]
            return _observed(site, log, "thrashing", THRASHING_SECONDS, prefix)
    except PermissionError as error:
        print(f"  no job can be given too little memory here: {error}", flush=True)
        return None


@contextmanager
def _memory_limit(group: Path) -> Iterator[None]:
    """A control group with little memory. Raises PermissionError."""
    if not os.access(MEMORY_GROUPS, os.W_OK):
        raise PermissionError(f"{MEMORY_GROUPS}: control groups of version 1 need root")
    group.mkdir()
    try:
        (group / "memory.limit_in_bytes").write_text(str(LIMIT_BYTES))
        yield
    finally:
        wait_until(lambda: not (group / "cgroup.procs").read_text(), "the job to leave its control group")
        group.rmdir()


def _bits(figures: Figures, observed: Sequence[Observed], thrashing: Observed | None) -> None:
    raising = [one for one in observed if _raised([one])]
    figures.add(
        "jobs_that_raise_trouble_bits", len(raising), "0", not raising, f"of {len(observed)} jobs of {len(KINDS)} kinds"
    )
    if thrashing is None:
        figures.skip("thrashing_raises_memory_stalled", "needs control groups of version 1, as root")
    else:
        figures.add("thrashing_raises_memory_stalled", "memory_stalled" in _raised([thrashing]))
    rows = []
    for kind in (*KINDS, "thrashing"):
        some = [one for one in (*observed, *([thrashing] if thrashing else [])) if one.kind == kind]
        if some:
            waits = [f"{fmean(one.memory_waiting_ratio for one in some):.1%}"]
            waits += [f"{fmean(one.storage_waiting_ratio for one in some):.1%}"]
            rows.append((kind, *waits, ", ".join(sorted(_raised(some))) or "none"))
    figures.table(
        "What nodes show under real jobs: how long some task waited, which stays on the node, and the bits that left.",
        ("job is heavy on", "waits for memory", "waits for disks", "bits raised"),
        rows,
    )


def _raised(some: Sequence[Observed]) -> set[str]:
    return {name for one in some for sent in one.sent for name in sent.raised}


def _times(figures: Figures, rounds: Sequence[Sequence[Observed]]) -> None:
    """How well kinds are recognised by times, and how much the times differ."""
    found = times_advantage(rounds)
    interval = f"{found.interval} windows of {sum(map(len, rounds))} jobs"
    holds = found.value <= LARGEST_ADVANTAGE
    figures.add("provider_advantage_telemetry_times", found.value, f"<= {LARGEST_ADVANTAGE:g}", holds, interval)
    stated = [_spread([one.sampled_at for one in each.sent]) for some in rounds for each in some]
    came = [_spread([one.came for one in each.sent]) for some in rounds for each in some]
    figures.add("telemetry_stated_times_spread_seconds", fmean(stated), interval="of the times between samples")
    figures.add("telemetry_arrival_times_spread_seconds", fmean(came), interval="of the times between messages")


def times_advantage(rounds: Sequence[Sequence[Observed]]) -> Advantage:
    """Attackers are trained on four rounds and tested on the fifth: `advantage` takes every fifth row for a part."""
    rows, kinds, jobs = [], [], []
    for kind in range(len(KINDS)):
        for number in range(WINDOWS):
            for at, one in enumerate(rounds):
                rows.append(list(one[kind].windows())[number])
                kinds.append(kind)
                jobs.append(at * len(KINDS) + kind)
    asked = np.array(kinds, dtype=np.int64)
    return advantage(np.array(rows), asked, len(KINDS), np.array(jobs, dtype=np.int64))


def _numbers(window: Sequence[Sent]) -> list[float]:
    """How the times between messages, and between the stated times, differ from the period."""
    found = []
    for times in ([one.came for one in window], [one.sampled_at for one in window]):
        gaps = [after - before - TELEMETRY_PERIOD_SECONDS for before, after in pairwise(times)] or [0.0]
        found += [fmean(gaps), pstdev(gaps), max(gaps), min(gaps)]
    delays = [one.came - one.sampled_at for one in window] or [0.0]
    return [*found, pstdev(delays), max(delays) - min(delays)]


def _spread(times: Sequence[float]) -> float:
    gaps = [after - before for before, after in pairwise(times)]
    return pstdev(gaps) if gaps else 0.0
