"""A script of this evaluation, run bare and under `pharoah run`.

Under `pharoah run` there is no provider, and everything else as it is by default: a dry run, a sidecar that watches,
and a record of the run, from which the fingerprint of the dry run is read. Where there was no dry run,
`pharoah explain` is asked for the reason.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from evaluation.coverage.environment import SOURCES
from evaluation.pages import ROOT
from evaluation.releases.install import COMPILED
from evaluation.releases.store import digest_of

HERE = Path(__file__).parent
BARE_SECONDS, WATCHED_SECONDS, DRY_SECONDS = 200.0, 500.0, 300.0
"""Limits for machines on which four other things run. A script takes a few seconds on an idle one, the one that
compiles for C++ 20."""
NO_DRY_RUN_SECONDS = 0.001
"""A dry run that ends at once: the record of the run then holds what was captured."""
MAX_SHOWN = 2000
"""Characters of an output or of errors that are kept."""
TOO_LONG = "longer than"
CACHES = {"TORCHINDUCTOR_CACHE_DIR": str(COMPILED)}
CAPTURED = ("mlp_adamw", "cnn_batch_norm", "gpt", "lstm_language_model", "checkpointing", "ddp")
"""Scripts whose step is also captured as it really runs."""
QUICK = ("mlp_adamw", "cnn_batch_norm", "gpt", "compile_aot", "loader_workers", "ddp", "fsdp2", "tensor_parallel")


@dataclass(frozen=True)
class Script:
    """One training script."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.stem

    @property
    def ranks(self) -> int:
        return 2 if self.path.parent.name == "two_ranks" else 1

    def command(self, interpreter: Path) -> list[str]:
        """As people start it."""
        if self.ranks == 1:
            return [str(interpreter), str(self.path)]
        torchrun = str(interpreter.with_name("torchrun"))
        return [torchrun, "--standalone", f"--nproc-per-node={self.ranks}", str(self.path)]


def scripts(quick: bool) -> list[Script]:
    found = [Script(path) for path in sorted((HERE / "scripts").glob("*/*.py"))]
    return [one for one in found if one.name in QUICK] if quick else found


def product_digest() -> str:
    """The digest of what a tenant's machine has of the working tree, and of how it is measured."""
    files = [path for source in SOURCES for path in (ROOT / source).rglob("*") if path.is_file()]
    return digest_of([*(path for path in files if "__pycache__" not in path.parts), HERE / "jobs.py"])


class Ended(NamedTuple):
    """How a command has ended."""

    code: int
    output: str
    errors: str
    seconds: float
    late: bool = False


def ended(command: Sequence[str], folder: Path, variables: Mapping[str, str], seconds: float, given: str = "") -> Ended:
    """Run a command in a folder, with `given` on its standard input. One that takes longer is killed with its group."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PHAROAH_", "PYTHON"))}
    path = os.pathsep.join((str(Path(command[0]).parent), os.environ.get("PATH", os.defpath)))
    environ = {**kept, "PATH": path, "OMP_NUM_THREADS": "1", **variables}
    environ.pop("VIRTUAL_ENV", None)
    began, late = time.monotonic(), False
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors, tempfile.TemporaryFile() as stdin:
        stdin.write(given.encode())
        stdin.seek(0)
        process = subprocess.Popen(
            command, cwd=folder, env=environ, stdin=stdin, stdout=output, stderr=errors, start_new_session=True
        )
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            late = True
        finally:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass  # nothing of it is left
            process.wait()
        for stream in (output, errors):
            stream.seek(0)
        read = [stream.read().decode(errors="replace") for stream in (output, errors)]
    said = f"{read[1]}\n{TOO_LONG} {seconds:g} s" if late else read[1]
    return Ended(process.returncode, read[0], said, time.monotonic() - began, late)


def bare(script: Script, interpreter: Path) -> dict[str, Any]:
    """What a script does alone."""
    with tempfile.TemporaryDirectory(prefix="release-", ignore_cleanup_errors=True) as place:
        return _seen(ended(script.command(interpreter), Path(place), CACHES, BARE_SECONDS), Path(place))


def watched(script: Script, interpreter: Path, capture: bool) -> dict[str, Any]:
    """What it does under `pharoah run`, with the archetype of the dry run; with `capture`, offline and with that of the
    step as it was captured."""
    limit = NO_DRY_RUN_SECONDS if capture else DRY_SECONDS
    command = [str(interpreter), "-m", "pharoah", "run", "--dry-run-timeout-seconds", str(limit), "--"]
    with (
        tempfile.TemporaryDirectory(prefix="release-", ignore_cleanup_errors=True) as place,
        tempfile.TemporaryDirectory(prefix="release-state-", ignore_cleanup_errors=True) as state,
    ):
        variables = {**CACHES, "PHAROAH_STATE_DIR": state, "PHAROAH_KEEP_RUNS": "9"}
        if capture:
            variables["PHAROAH_MODE"] = "offline"
        done = ended([*command, *script.command(interpreter)], Path(place), variables, WATCHED_SECONDS)
        return _seen(done, Path(place)) | _recorded(Path(state))


def explained(script: Script, interpreter: Path) -> dict[str, Any]:
    """The archetype that `pharoah explain` gives, or the reason why it gives none."""
    command = [str(interpreter), "-m", "pharoah", "explain", "-o", "json"]
    command += ["--dry-run-timeout-seconds", str(DRY_SECONDS), "--"]
    with tempfile.TemporaryDirectory(prefix="release-", ignore_cleanup_errors=True) as place:
        done = ended([*command, *script.command(interpreter)], Path(place), CACHES, WATCHED_SECONDS)
    try:
        fingerprint = json.loads(done.output.splitlines()[-1])
        return {"archetype": fingerprint["archetype"], "grammar": fingerprint["grammar"], "late": False}
    except (IndexError, ValueError, KeyError, TypeError):
        return {"archetype": "", "reason": done.errors.strip()[-MAX_SHOWN:], "late": done.late}


def difference(alone: Mapping[str, Any], under: Mapping[str, Any]) -> str:
    """In what a run under Pharoah differs from one alone; empty where they are identical."""
    for what in ("code", "output", "files"):
        if alone[what] != under[what]:
            return f"{what}: {alone[what]!r:.120} became {under[what]!r:.120}; {under['errors'][-300:]}"
    return ""


def error_line(text: str) -> str:
    """The line of some errors that says what it was: not that a launcher's ranks have failed, nor in which state they
    were."""
    lines = [line.strip() for line in text.splitlines() if line.strip(" =-")]
    named = [line for line in lines if re.search(rf"\w(Error|Exception)\b|{TOO_LONG}", line)]
    own = [line for line in named if "ChildFailedError" not in line and "error_file" not in line]
    return (own or named or lines or [""])[-1]


def _seen(done: Ended, place: Path) -> dict[str, Any]:
    files = {str(path.relative_to(place)): path for path in place.rglob("*") if path.is_file()}
    output = done.output
    if len(output) > MAX_SHOWN:
        output = f"{hashlib.sha256(output.encode()).hexdigest()} {output[-MAX_SHOWN:]}"
    return {
        "code": done.code,
        "output": output,
        "files": {name: hashlib.sha256(path.read_bytes()).hexdigest()[:16] for name, path in sorted(files.items())},
        "errors": done.errors.strip()[-MAX_SHOWN:],
        "why": error_line(done.errors) if done.code else "",
        "seconds": round(done.seconds, 1),
        "late": done.late,
    }


def _recorded(state: Path) -> dict[str, Any]:
    """What the record of the run holds: the structure of its step, whether by a dry run, and the steps that were
    counted."""
    for path in state.rglob("*.json"):
        data = json.loads(path.read_text())
        groups = data.get("groups", {})
        structure = dict(groups.get("structure", {}))
        return {
            "archetype": structure.pop("archetype", ""),
            "grammar": "\n".join(f"{name}: {word}" for name, word in structure.items()),
            "dry": "cost" in groups,
            "steps": data.get("run", {}).get("steps", 0),
        }
    return {"archetype": "", "grammar": "", "dry": False, "steps": 0}
