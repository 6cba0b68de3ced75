"""Attempts to get out of a dry run in each kind of sandbox, and what the walls cost.

Every attempt is made by a script in a real dry run. Files, sockets, a process, a terminal and others outside are looked
at before and after; any difference counts. `escape_attempts` has the attempts, `escape_site` what they aim at.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from evaluation.figures import Figures
from evaluation.hardening.sandbox_worker import ALONE, Found
from evaluation.pages import ROOT
from pharoah.dryrun import dry_run
from pharoah.dryrun.sandbox_mode import SandboxMode

MIN_ATTEMPTS = 40
_GROUP_SIZE, _QUICK_GROUP_SIZE = 1, 8
"""Attempts of one dry run. One alone is not disturbed by others; groups take less time."""
_WORKER_SECONDS = 600.0
_TIMED_RUNS = 5
_JOB = """
import torch
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    model(torch.randn(4, 8)).pow(2).mean().backward()
    optimizer.step()
"""


def measure(figures: Figures, quick: bool, seed: int) -> None:
    """Make the attempts in all modes. They are the same for every seed."""
    del seed
    modes = [SandboxMode.USER, SandboxMode.RULES]
    if os.geteuid() == 0:
        modes.insert(0, SandboxMode.ROOT)
    size = _QUICK_GROUP_SIZE if quick else _GROUP_SIZE
    escapes, rows = 0, []
    for mode in modes:
        found = attempts_in(mode, size)
        escapes += len(found.escaped)
        rows.append([mode, str(found.attempts), _listed(found.escaped), _listed(found.failed)])
    figures.add("sandbox_escapes", escapes, "0", escapes == 0, f"{found.attempts} ways, {len(modes)} modes")
    enough = found.attempts >= MIN_ATTEMPTS
    figures.add("sandbox_ways", found.attempts, f">= {MIN_ATTEMPTS}", enough)
    if not quick:
        alone = attempts_in(ALONE, 1)
        figures.ratio("sandbox_ways_that_work_alone_ratio", len(alone.escaped), alone.attempts)
    figures.table("", ("mode", "ways", "what got out", "not tried to the end"), rows)
    for mode in modes:
        figures.add(f"dry_run_seconds_{mode}", dry_run_seconds(mode))


def attempts_in(mode: str, group_size: int) -> Found:
    """What a worker prints: how many attempts, which escaped, which were not tried to the end."""
    command = [sys.executable, "-m", "evaluation.hardening.sandbox_worker", mode, str(group_size)]
    done = subprocess.run(
        command, cwd=ROOT, stdout=subprocess.PIPE, timeout=_WORKER_SECONDS, check=True, stdin=subprocess.DEVNULL
    )
    return Found(**json.loads(done.stdout.splitlines()[-1]))


def dry_run_seconds(mode: SandboxMode) -> float:
    """Median time of the dry run of a small job."""
    taken = []
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "train.py"
        script.write_text(_JOB)
        command = ["env", f"PHAROAH_DRY_RUN_SANDBOX={mode}", sys.executable, str(script)]
        for _ in range(_TIMED_RUNS):
            began = time.monotonic()
            dry_run(command, _WORKER_SECONDS)
            taken.append(time.monotonic() - began)
    return statistics.median(taken)


def _listed(found: Mapping[str, object]) -> str:
    return "; ".join(f"{names}: {what}" for names, what in found.items()) or "nothing"
