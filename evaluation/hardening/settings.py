"""Settings that cannot be read or used: the job starts, prints and ends as alone, under `pharoah run` and `register()`.

Every variable of the tenant has bad values of its kind. Each start is compared with the same job in the same
environment without Pharoah. Nothing asks for a refusal, so each job that does not start is Pharoah's fault.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from enum import Enum
from pathlib import Path

from evaluation.figures import Figures
from pharoah._settings import Settings
from tests.harness.started_jobs import PROBE, Start, started_jobs

AT_ONCE = 2
"""Starts at the same time, as many as the smallest machine has cores."""
VALUES = 5
"""Bad values of each variable."""
SECONDS = ("soon", "nan", "1e999", "-1", "1e300")
COUNTS = ("many", "-1", "1e3", "9" * 5000, "0x10")
FLAGS = ("perhaps", "2", "nan", "-1", "\udcff")
WORDS = ("newer", "BLOCK ", "gate=block", "\udcff", "x" * 100_000)
ADDRESSES = ("nobody", "unix:", "host:99999", "\udcff:1", "x" * 100_000)
USERS = ("nobody-of-this-name", "-1", ",,,", "\udcff", "9" * 5000)
FILES = ("absent/file", "folder", "pipe", "secret", "x" * 100_000)
"""A file in no folder, a folder, a pipe that nobody writes, a file that others may write to, a name that is too long.
"""
REGISTERED = """
import sys
{register}
print("trains")
with open({result!r}, "w") as file:
    file.write("trained")
sys.exit(7)
"""
REGISTER = "import pharoah; session = pharoah.register(); bool(session.run_id)"


def measure(figures: Figures, quick: bool, seed: int) -> None:
    """Add the figures of this part."""
    cases = list(_cases(quick, seed))
    with ThreadPoolExecutor(AT_ONCE) as pool:
        failed = [name for name in pool.map(lambda case: _differs(*case), cases) if name]
    for name in failed:
        print(f"  NOT STARTED: {name}", flush=True)
    figures.details["settings"] = failed
    figures.add("settings_job_not_started", len(failed), "0", not failed)
    figures.add("settings_starts", len(cases))


def _cases(quick: bool, seed: int) -> Iterator[tuple[str, str, str]]:
    """A variable, its value, and how the job is started."""
    chance = random.Random(seed)
    for setting in fields(Settings):
        variable, values = setting.metadata["variable"], bad_values(setting.name, setting.default)
        assert len(values) == VALUES
        for value in chance.sample(values, 1) if quick else values:
            for way in ("run", "register"):
                yield variable, value, way


def bad_values(name: str, default: object) -> tuple[str, ...]:
    """What the variable of a setting cannot be, or what cannot be used as it."""
    if isinstance(default, Enum):
        return WORDS
    if isinstance(default, bool):
        return FLAGS
    if isinstance(default, float):
        return SECONDS
    if isinstance(default, int):
        return COUNTS
    if name.endswith(("_file", "_folder", "_socket")):
        return FILES
    return USERS if name == "service_users" else ADDRESSES


def _differs(variable: str, value: str, way: str) -> str:
    """What did not start; empty where the job ended as alone."""
    with started_jobs() as root:
        environment = {variable: _made(root, value) if value in FILES else value}
        if way == "run":
            start = Start((sys.executable, "-c", PROBE), environment=environment)
            alone, watched = start.alone(root), start.under_pharoah(root)
        else:
            alone, watched = (
                Start((sys.executable, "-c", _script(root, register)), environment=environment).alone(root)
                for register in ("", REGISTER)
            )
    if watched.same_as(alone):
        return ""
    last = watched.errors.decode(errors="replace")[-500:]
    return f"{way}, {variable}={value[:60]!r}: exit code {watched.exit_code}\n{last}"


def _script(root: Path, register: str) -> str:
    return REGISTERED.format(register=register, result=str(root / "results" / "result"))


def _made(root: Path, kind: str) -> str:
    """A path of this kind."""
    path = root / kind
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "secret":
        path.write_text("what others may write to")
        path.chmod(0o666)
    return str(path)
