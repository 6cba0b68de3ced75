"""Jobs in control groups of memory that they nearly fill: what lives alone lives under Pharoah, and stays watched.

What a job holds is measured in a group without a limit; its group gets that and some room. Each is started there alone,
as the control, and under `pharoah run`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from evaluation.figures import Figures
from evaluation.hardening.limited_groups import Watched, limited_group
from pharoah.dryrun.parent import DRY_RUN_BYTES
from pharoah_system.waiting import waiters
from tests.harness.started_jobs import TRAIN, Ended, Start, started_jobs

MIB = 1 << 20
NARROW_MIB, WIDE_MIB = (8, 16, 24, 32, 48, 64), (256, 512)
NARROW_QUICK_MIB, WIDE_QUICK_MIB = (8, 64), (256,)
WAITER_MIB = 2.0
"""The most that a waiter may hold."""
SIZES_MIB = {"slowly": 300, "at once": 400, "in workers": 250, "beside files": 200, "again and again": 350}
AT_MOST = """
import time
time.sleep(2.5)  # as long as a sidecar takes to look twice
print("done", flush=True)
sys.exit(3)
"""
ALLOCATES = {
    "slowly": """
import sys, time
held = []
for _ in range(int(sys.argv[1])):
    held.append(bytearray(1 << 20))
    time.sleep(0.008)
""",
    "at once": """
import sys
held = bytearray(int(sys.argv[1]) << 20)
""",
    "in workers": """
import os, sys, time
for _ in range(4):
    if not os.fork():
        held = bytearray((int(sys.argv[1]) // 4) << 20)
        time.sleep(4)
        os._exit(0)
time.sleep(1)
""",
    "beside files": """
import os, sys
with open(os.environ["RESULT"] + ".data", "wb") as file:
    for _ in range(300):
        file.write(bytes(1 << 20))
held = []
for _ in range(int(sys.argv[1])):
    held.append(bytearray(1 << 20))
    with open(os.environ["RESULT"] + ".data", "rb") as file:
        file.seek((len(held) % 300) << 20)
        file.read(1 << 20)
os.unlink(os.environ["RESULT"] + ".data")
""",
    "again and again": """
import sys
for _ in range(6):
    held = None
    held = bytearray(int(sys.argv[1]) << 20)
""",
}
"""How a job comes to hold the memory of its argument, in MiB."""
TRAINS = "trains"


@dataclass(frozen=True)
class Case:
    """A job and the room that its group has beside it."""

    kind: str
    room_mib: int
    kills_all: bool = False

    @property
    def name(self) -> str:
        return f"{self.kind}, room {self.room_mib} MiB" + (", killed as a group" if self.kills_all else "")


@dataclass(frozen=True)
class Outcome:
    """How it went alone and under Pharoah."""

    case: Case
    alone: Ended
    under: Ended
    watched: bool

    @property
    def lives_alone(self) -> bool:
        return self.alone.exit_code == 3

    @property
    def killed(self) -> bool:
        return self.lives_alone and not self.under.same_as(self.alone)


def measure(figures: Figures, quick: bool, seed: int) -> None:
    """Add the figures of this part. The cases are the same for every seed."""
    del seed
    with tempfile.TemporaryDirectory() as folder:
        scripts = _scripts(Path(folder))
        try:
            with limited_group() as group:
                second = group.is_second_version
        except OSError as error:
            figures.skip("killed_in_memory_group", f"no control group can be made here: {error}")
            return
        held = {kind: _held_bytes(start) for kind, start in scripts.items()}
        narrow, wide = (NARROW_QUICK_MIB, WIDE_QUICK_MIB) if quick else (NARROW_MIB, WIDE_MIB)
        ways = (False, True) if second else (False,)
        cases = [Case(kind, room, all_) for kind in scripts for room in (*narrow, *wide) for all_ in ways]
        outcomes = [_outcome(case, scripts[case.kind], held[case.kind]) for case in cases]
    controls = [outcome for outcome in outcomes if outcome.lives_alone]
    tight = [outcome for outcome in controls if outcome.case.room_mib in narrow]
    killed = [outcome for outcome in controls if outcome.killed]
    for outcome in killed:
        print(f"  KILLED: {outcome.case.name}: {outcome.under.exit_code}, {outcome.under.errors[-300:]!r}", flush=True)
    figures.details["killed_in_memory_group"] = [outcome.case.name for outcome in killed]
    figures.add("killed_in_memory_group", len(killed), "0", not killed, f"{len(controls)} that live alone")
    figures.add("memory_group_cases", len(tight), ">= 30", quick or len(tight) >= 30, "with 8 to 64 MiB of room")
    roomy = [outcome for outcome in controls if outcome.case.room_mib in wide]
    for outcome in roomy:
        if not outcome.watched:
            print(f"  NOT WATCHED: {outcome.case.name}: {outcome.under.errors[-300:]!r}", flush=True)
    figures.ratio("watched_in_memory_group_ratio", sum(outcome.watched for outcome in roomy), len(roomy), 1.0)
    _sizes(figures)


def _scripts(folder: Path) -> dict[str, Start]:
    starts = {}
    for kind, code in ALLOCATES.items():
        path = folder / f"{kind.replace(' ', '-')}.py"
        path.write_text(code + AT_MOST)
        starts[kind] = Start((sys.executable, str(path), str(SIZES_MIB[kind])))
    (folder / "train.py").write_text(TRAIN.replace("sys.exit(3)", AT_MOST.replace("import time", "import sys, time")))
    starts[TRAINS] = Start((sys.executable, str(folder / "train.py")))
    return starts


def _held_bytes(start: Start) -> int:
    """What a job holds alone at most."""
    with limited_group() as group, started_jobs() as root, Watched(group) as watched:
        replace(start, group=group.folder).alone(root)
    return watched.most_bytes


def _outcome(case: Case, start: Start, held_bytes: int) -> Outcome:
    with limited_group() as group, started_jobs() as root:
        group.limit(held_bytes + case.room_mib * MIB, case.kills_all)
        alone = replace(start, group=group.folder).alone(root)
    with limited_group() as group, started_jobs() as root, Watched(group) as watched:
        group.limit(held_bytes + case.room_mib * MIB, case.kills_all)
        under = replace(start, group=group.folder).under_pharoah(root)
    print(f"  {case.name:50} alone {alone.exit_code:4} under {under.exit_code:4}", flush=True)
    return Outcome(case, alone, under, watched.sidecar_at_most)


def _sizes(figures: Figures) -> None:
    """What each part of ours holds, as docs/tenant/launch.md states it."""
    with limited_group() as group, started_jobs() as root, Watched(group) as watched:
        (root / "train.py").write_text(TRAIN)
        command = (sys.executable, "-P", "-m", "pharoah", "check", "--", sys.executable, str(root / "train.py"))
        Start(command, group=group.folder).alone(root)
    dry_run = watched.most_bytes - _held_by_sidecar(figures)
    bound = DRY_RUN_BYTES / MIB
    figures.add("memory_dry_run_mib", dry_run / MIB, f"<= {bound:g}", dry_run <= DRY_RUN_BYTES)
    for program, arguments in waiters():
        if not Path(program).exists():
            continue
        is_small = not arguments
        name = "memory_waiter_mib" if is_small else "memory_waiter_python_mib"
        size = _held_by_waiter(program, arguments)
        figures.add(
            name, size / MIB, f"<= {WAITER_MIB:g}" if is_small else "", not is_small or size <= WAITER_MIB * MIB
        )


def _held_by_sidecar(figures: Figures) -> int:
    """The own pages of a sidecar that watches."""
    job = Start((sys.executable, "-c", "import time; time.sleep(3)"))
    with limited_group() as group, started_jobs() as root, Watched(group) as watched:
        replace(job, group=group.folder).under_pharoah(root)
    figures.add("memory_sidecar_mib", watched.sidecar_bytes / MIB, "", True, "its own pages")
    return watched.sidecar_bytes


def _held_by_waiter(program: str, arguments: Sequence[str]) -> int:
    """The own pages of a waiter while it waits, dirty or not."""
    code = f"""
import os, signal, sys, time
job = os.fork()
if not job:
    time.sleep(60)
    os._exit(0)
signal.pthread_sigmask(signal.SIG_BLOCK, {{signal.SIGTERM, signal.SIGCHLD}})
os.execv({program!r}, ["waiter", *{arguments!r}, str(job), "4000", "0"])
"""
    with subprocess.Popen([sys.executable, "-c", code]) as waiter:
        time.sleep(1.0)
        lines = Path(f"/proc/{waiter.pid}/smaps_rollup").read_text().splitlines()
        size = sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Private_"))
        os.kill(waiter.pid, 15)
        waiter.wait()
    return size
