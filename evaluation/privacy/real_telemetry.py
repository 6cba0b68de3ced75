"""What a real agent and a real sidecar send while jobs of different kinds run, and what the times of messages show.

A site of real processes has one node. Jobs that are heavy on processors, memory, a disk or the network run on its core
under `pharoah run`, one after the other in random order, and an idle one. The provider is the one that is shipped and
writes down each message with the time at which it came. What reports say is counted in `report_leakage`; here only
their times are. This machine has no GPU and no fabric: their bits are in `simulated_nodes`.
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
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from evaluation.figures import OUTPUT, Figures
from evaluation.pages import ROOT
from evaluation.privacy.attack_on_times import (
    SHUFFLES,
    WINDOW_SECONDS,
    WINDOWS,
    Sent,
    shuffled_ratio,
    spread,
    times_advantage,
)
from evaluation.privacy.guessing import FOLDS
from evaluation.privacy.watching_provider import CONTENTS, received
from pharoah.sidecar.run_reporter import REPORT_SECONDS
from pharoah_protocol.v1 import AgentMessage, ReportRequest
from pharoah_provider.services.agent import TELEMETRY_PERIOD_SECONDS
from tests.harness.site import Site, running_site
from tests.harness.until import wait_until

FOLDER = OUTPUT / "telemetry"
SCRIPT = ROOT / "evaluation" / "scripts" / "train_heavy.py"
KINDS = ("idle", "compute", "memory", "storage", "network")
NODE = "n1"
ROUNDS = 5 * FOLDS
"""How often each kind of job runs: a multiple of the parts into which an attacker divides them."""
MAX_ADVANTAGE = 0.05
"""The bound of what a provider may learn, as in `report_leakage`. Jobs are few here, so that attackers may be above it
by chance: the share of shuffles shows how often."""
NO_DRY_RUN = ("--dry-run-timeout-seconds", "0.001")
READY_SECONDS, SETTLED_SECONDS, ENDED_SECONDS = 60.0, 5.0, 30.0
"""Until the first step, from there until the run has joined, and until a job has ended."""
MEMORY_GROUPS = Path("/sys/fs/cgroup/memory")
"""Control groups of version 1."""
LIMIT_BYTES = 400 << 20
"""Well below what the job that thrashes wants to keep; how much it waits depends on how fast the disk is."""
THRASHING_SECONDS = 60.0
"""After 21 s of waiting all the time, the kernel's average of a minute is above 30 %."""
PRESSURE = Path("/proc/pressure")


@dataclass(frozen=True)
class Observed:
    """One job, and what was sent while it ran."""

    kind: str
    sent: Sequence[Sent]
    """Messages with telemetry."""
    reports: Sequence[Sent]
    memory_waiting_ratio: float
    """The share of the time in which some task of this machine waited for memory."""
    storage_waiting_ratio: float


def measure(figures: Figures, seed: int, quick: bool) -> None:
    """The bits of each kind of job, and how well kinds are recognised by the times of messages."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    log, chance = FOLDER / "messages", random.Random(seed)
    program = ("-m", "evaluation.privacy.watching_provider", str(log), CONTENTS)
    profiles = {NODE: {"cpus": [min(os.sched_getaffinity(0))], "threads": 1}}
    with running_site(FOLDER / "site", profiles, provider_program=program) as site:
        rounds = [_round(site, log, chance) for _ in range(1 if quick else ROUNDS)]
        thrashing = _thrashing(site, log)
    observed = [one for some in rounds for one in some]
    _bits(figures, observed, thrashing)
    if quick:
        figures.skip("provider_advantage_telemetry_times", "needs several jobs of each kind")
        figures.skip("provider_advantage_report_times", "needs several jobs of each kind")
    else:
        _times(figures, rounds, chance)


def _round(site: Site, log: Path, chance: random.Random) -> list[Observed]:
    """Each kind once; the result is in the order of KINDS."""
    order = chance.sample(KINDS, len(KINDS))
    found = {kind: _observed(site, log, kind, WINDOWS * WINDOW_SECONDS + TELEMETRY_PERIOD_SECONDS) for kind in order}
    return [found[kind] for kind in KINDS]


def _observed(site: Site, log: Path, kind: str, seconds: float, prefix: Sequence[str] = ()) -> Observed:
    folder = FOLDER / "job"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    ready = folder / "ready"
    words = [sys.executable, str(SCRIPT), kind, "--folder", str(folder), "--ready", str(ready)]
    command = site.under_pharoah(NODE, [*words, "--seconds", "600"], *NO_DRY_RUN)
    environment = site.tenant_environment(NODE)
    with (folder / "output").open("wb") as output:
        job = site.scope.own(
            subprocess.Popen([*prefix, *command], start_new_session=True, stdout=output, stderr=output, env=environment)
        )
    try:
        wait_until(ready.exists, f"the first step of {kind}", READY_SECONDS)
        time.sleep(SETTLED_SECONDS)
        began, before = time.monotonic(), _waited()
        time.sleep(seconds)
        ended, after = time.monotonic(), _waited()
    finally:
        _end(job)
    sent, reports = ([one for one in some if began <= one.came < ended] for some in (_telemetry(log), _reports(log)))
    shares = {name: (after[name] - before[name]) / (ended - began) for name in before}
    print(
        f"  {kind}: {len(sent)} messages with telemetry, {len(reports)} reports; waits for memory "
        f"{shares['memory']:.1%}, for disks {shares['io']:.1%}",
        flush=True,
    )
    return Observed(kind, sent, reports, shares["memory"], shares["io"])


def _end(job: subprocess.Popen[bytes]) -> None:
    """As the user of a job would do it, so that its run ends before the next one begins."""
    job.terminate()
    try:
        job.wait(ENDED_SECONDS)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(job.pid, signal.SIGKILL)  # both ranks
        job.wait()


def _telemetry(log: Path) -> Iterator[Sent]:
    for message in received(log):
        if message.method != "Connect":
            continue
        rows = AgentMessage.FromString(message.content).telemetry
        if rows.metric:
            raised = frozenset(name for name, value in zip(rows.metric, rows.value, strict=True) if value)
            yield Sent(message.came, rows.sampled_at[0], raised)


def _reports(log: Path) -> Iterator[Sent]:
    for message in received(log):
        if message.method == "Report":
            yield Sent(message.came, ReportRequest.FromString(message.content).first_ended_at)


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


def _times(figures: Figures, rounds: Sequence[Sequence[Observed]], chance: random.Random) -> None:
    """How well kinds are recognised by times, and how much the times differ."""
    telemetry = [[one.sent for one in some] for some in rounds]
    reports = [[one.reports for one in some] for some in rounds]
    for what, period, sent in (
        ("telemetry", TELEMETRY_PERIOD_SECONDS, telemetry),
        ("report", REPORT_SECONDS, reports),
    ):
        found = times_advantage(sent, period)
        interval = f"{found.interval} windows of {sum(map(len, sent))} jobs"
        holds = found.value <= MAX_ADVANTAGE
        figures.add(f"provider_advantage_{what}_times", found.value, f"<= {MAX_ADVANTAGE:g}", holds, interval)
        share = shuffled_ratio(sent, period, found.value, chance)
        figures.add(f"{what}_times_shuffled_ratio", share, interval=f"of {SHUFFLES} shuffles")
        stated = fmean(spread([each.stated for each in one]) for some in sent for one in some)
        came = fmean(spread([each.came for each in one]) for some in sent for one in some)
        figures.add(f"{what}_stated_times_spread_seconds", stated, interval="of the times between those stated")
        figures.add(f"{what}_arrival_times_spread_seconds", came, interval="of the times between messages")
