"""The start of a job beside four busy loops: later than alone by no more than the limit of the dry run.

The job's dry run does not come to its end there, or hardly, so its limit in wall seconds is what counts. What is
measured is the time to the first line of the job, under `pharoah run` and alone, both beside the loops.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from evaluation.busy_loops import busy_loops
from evaluation.figures import Figures
from tests.harness.started_jobs import tenant_settings

LOOPS = 4
LIMITS_SECONDS, LIMITS_QUICK_SECONDS = (8.0, 15.0, 30.0), (10.0,)
"""PHAROAH_DRY_RUN_TIMEOUT_S; 30 is its default."""
MAX_OVER_SECONDS = 5.0
JOBS = {
    "whose dry run never ends": """
import time
print("began", flush=True)
time.sleep(3600 if "pharoah.dryrun" in str(__import__("sys").orig_argv) else 0)
import torch
""",
    "that trains": """
print("began", flush=True)
import torch
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(4):
    model(torch.randn(8, 64)).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
""",
    "of another program": "print('began', flush=True)",
}


def measure(figures: Figures, quick: bool, seed: int) -> None:
    """Add `start_delay_over_limit_s`. The jobs are the same for every seed."""
    del seed
    over: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder, busy_loops(LOOPS):
        for name, code in JOBS.items():
            script = Path(folder, "job.py")
            script.write_text(code)
            job = [sys.executable, str(script)]
            alone = _seconds_to_first_line(job, Path(folder), {})
            for limit in LIMITS_QUICK_SECONDS if quick else LIMITS_SECONDS:
                command = [sys.executable, "-P", "-m", "pharoah", "run", "--", *job]
                took = _seconds_to_first_line(command, Path(folder), {"PHAROAH_DRY_RUN_TIMEOUT_S": str(limit)})
                over[f"a job {name}, limit {limit:g} s"] = took - alone - limit
                print(f"  a job {name:26} limit {limit:4g} s: alone {alone:5.1f} s, under {took:5.1f} s", flush=True)
    longest = max(over.values())
    figures.details["start_delay"] = over
    figures.add("start_delay_over_limit_s", longest, f"<= {MAX_OVER_SECONDS:g}", longest <= MAX_OVER_SECONDS)


def _seconds_to_first_line(command: list[str], folder: Path, environment: dict[str, str]) -> float:
    """Wall seconds from the start of a command to the first line of its standard output."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PHAROAH_", "PYTHON"))}
    environ = {**inherited, **tenant_settings(folder), **environment}
    began = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        took = time.monotonic() - began
        process.terminate()
    if line != b"began\n":
        raise RuntimeError(f"{command}: the job did not begin: {line!r}")
    return took
