"""One job of this evaluation: run for real with capture, and dry-run; do both see the same step?"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import chdir, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pharoah import PharoahError
from pharoah.dryrun import dry_run

REAL_SECONDS = 300.0
"""How long a script may take for real on a busy machine of two cores."""
DRY_SECONDS = 120.0
TERMINATION_SECONDS = 10.0
"""How long a run that took too long has to end by itself."""
NO_DRY_RUN_SECONDS = "0.001"
"""A dry run that ends at once: the record of the run then holds what was captured."""
MAX_ERROR_LENGTH = 300
STOPPED = "stopped"
"""How the error of a run begins that took too long."""
VARIABLES = {
    "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "WANDB_MODE": "disabled",
    "TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1", "DO_NOT_TRACK": "0",
    "MPLBACKEND": "Agg", "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
}  # fmt: skip
"""Nothing is downloaded or reported anywhere, and runs beside each other share the cores."""


@dataclass(frozen=True)
class Job:
    """A command in a folder with its files."""

    name: str
    command: tuple[str, ...]
    folder: Path | None = None
    """Copied for every run, so that no run sees what another one has left; None for an empty one."""
    variables: Mapping[str, str] = field(default_factory=dict)
    inside: str = "."
    """Where in the folder the command starts."""
    runs_here: bool = True
    """Whether it can run for real on this machine; a script that wants GPUs is only dry-run."""
    seconds: float = REAL_SECONDS
    """How long it runs for real at most. One that takes longer is stopped; it has run if a step was captured."""


@dataclass(frozen=True)
class Outcome:
    """What became of a job."""

    job: Job
    failed: str = ""
    """Why it does not run even without Pharoah; empty when it does."""
    reason: str = ""
    """Why there is no dry run; empty when there is."""
    dry: str = ""
    """Name of the archetype of the dry run."""
    real: str = ""
    """Name of the archetype of the captured step; empty when no step was captured."""
    grammars: tuple[str, str] = ("", "")
    """The structures of both, for people."""
    branched: bool = False
    """Whether it decides by a value that a dry run does not have."""
    exploring_seconds: float = 0.0
    """How long its branches were followed after the first result."""

    @property
    def is_dry_run(self) -> bool:
        return bool(self.dry)

    @property
    def is_equal(self) -> bool:
        """Whether the dry run shows the step that was captured."""
        return self.dry == self.real != ""


def outcome(job: Job, interpreter: str) -> Outcome:
    """Run a job for real and dry-run it. `interpreter` has Pharoah and the libraries of the job."""
    real = _real(job, interpreter) if job.runs_here else _Run()
    if real.error:
        return Outcome(job, failed=real.error)
    if real.harmed:
        return Outcome(job, reason=real.harmed)
    captured = real.captured
    with place(job) as folder, chdir(folder), job_environment(job, interpreter):
        try:
            dry = dry_run(job.command, DRY_SECONDS)
        except PharoahError as reason:
            return Outcome(job, reason=str(reason), real=captured.get("archetype", ""))
    return Outcome(
        job,
        dry=dry.fingerprint.archetype,
        real=captured.get("archetype", ""),
        grammars=(dry.fingerprint.grammar, "\n".join(f"{k}: {v}" for k, v in captured.items() if k != "archetype")),
        branched=any("both ways" in sentence for sentence in dry.assumptions),
        exploring_seconds=dry.exploring_seconds,
    )


@dataclass(frozen=True)
class _Run:
    """A real run."""

    error: str = ""
    """Why it failed without Pharoah, too; empty when it did not."""
    harmed: str = ""
    """Why it failed under Pharoah only, which counts against Pharoah."""
    captured: Mapping[str, str] = field(default_factory=dict)
    """The structure of the captured step; empty when no step was captured."""


def _real(job: Job, interpreter: str) -> _Run:
    """The run under `pharoah run`, and alone if that fails."""
    with place(job) as folder, tempfile.TemporaryDirectory() as state:
        own = {"PHAROAH_STATE_DIR": state, "PHAROAH_KEEP_RUNS": "9"}
        watched = [interpreter, "-m", "pharoah", "run", "--dry-run-timeout-seconds", NO_DRY_RUN_SECONDS, "--"]
        with job_environment(job, interpreter):
            error = _run([*watched, *job.command], folder, own, job.seconds)
        captured = _captured(Path(state))
        if not error or (error.startswith(STOPPED) and captured):
            return _Run(captured=captured)
    with place(job) as folder, job_environment(job, interpreter):
        alone = _run(list(job.command), folder, {}, job.seconds)
    return _Run(error=alone) if alone else _Run(harmed=f"fails only under pharoah run: {error}")


def _run(command: Sequence[str], folder: Path, variables: Mapping[str, str], seconds: float) -> str:
    """The last lines of standard error of a command that fails; empty for one that succeeds."""
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            command, cwd=folder, env={**os.environ, **variables}, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=errors, start_new_session=True,
        )  # fmt: skip
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.terminate()  # `pharoah run` ends its job
            _wait(process, TERMINATION_SECONDS)
            return f"{STOPPED} after {seconds:g} s"
        finally:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()
        errors.seek(0)
        said = errors.read().decode(errors="replace").strip()
    return f"exit code {code}: {said[-MAX_ERROR_LENGTH:]}" if code else ""


def _wait(process: subprocess.Popen[bytes], seconds: float) -> None:
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        pass


def _captured(state: Path) -> dict[str, str]:
    """The structure of the run in this folder of runs; empty when no step was captured."""
    for path in state.rglob("*.json"):
        groups = json.loads(path.read_text()).get("groups", {})
        # A compiled step shows less than the eager one; `python -m evaluation capture` compares what both show.
        if groups.get("structure") and groups.get("choices", {}).get("compiled") != "yes":
            return dict(groups["structure"])
    return {}


@contextmanager
def place(job: Job) -> Iterator[Path]:
    """The folder where the job starts, with copies of its files for one run."""
    with tempfile.TemporaryDirectory(prefix="pharoah-coverage-", ignore_cleanup_errors=True) as folder:
        if job.folder:
            shutil.copytree(job.folder, folder, dirs_exist_ok=True, symlinks=True)
        yield Path(folder, job.inside)


@contextmanager
def job_environment(job: Job, interpreter: str) -> Iterator[None]:
    """The job's variables in this process's environment, which runs inherit; programs are those of the interpreter."""
    before = dict(os.environ)
    path = os.pathsep.join((str(Path(interpreter).parent), os.environ.get("PATH", os.defpath)))
    os.environ.update({**VARIABLES, "PATH": path, **job.variables})
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
