"""What the sub-commands share: options, the sidecar of a check, and the meaning of a verdict as an exit code."""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pharoah._errors import SettingsError
from pharoah._runtime_folder import private_folder
from pharoah._settings import Settings
from pharoah._sidecar_link import SERVES, SIDECAR, SidecarLink
from pharoah._sidecar_start import START_SECONDS, start_sidecar, wait_for
from pharoah._verdict import Verdict
from pharoah.cost.mitigation import Mitigation
from pharoah.dryrun import DryRun, dry_run
from pharoah.launchers import skips_site
from pharoah_protocol.vocabulary import LaunchGate, VerdictStatus
from pharoah_system.standard_streams import STANDARD_ERROR, say

INCOMPATIBLE, STRICT, OFFLINE = 10, 11, 12
_KILLED_SECONDS = 1.0
"""A killed process ends within milliseconds."""
_INJECTED = Path(__file__).parents[1] / "_inject"
"""The folder with the hook that watches scripts (docs/adr/0006)."""


def add_check_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--gate", choices=[*LaunchGate], help="what an incompatible verdict does (default: warn)")
    parser.add_argument("--strict", action="store_true", help="exit with 11 when the verdict is unknown")
    parser.add_argument("--require-online", action="store_true", help="exit with 12 when no provider is reached")
    parser.add_argument("--endpoint", metavar="ADDRESS", help="the provider (PHAROAH_ENDPOINT)")
    parser.add_argument("--node-socket", metavar="PATH", help="the node's agent (PHAROAH_NODE_SOCKET)")
    parser.add_argument("--verdict-file", metavar="PATH", help="write the verdict into this file as JSON")
    add_dry_run_options(parser)


def add_dry_run_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dry-run-timeout-seconds", type=float, metavar="S", help="default: 30")
    parser.add_argument(
        "--allow-unprotected-dry-run",
        action="store_true",
        default=None,
        help="dry-run the job also where this machine offers no sandbox (PHAROAH_DRY_RUN_UNPROTECTED)",
    )
    parser.add_argument(
        "--nnodes", type=_count, metavar="N", help="nodes to check for, if the command does not give it"
    )
    parser.add_argument("--nproc-per-node", type=_count, metavar="N", help="processes (GPUs) on each of them")
    parser.add_argument(
        "--gpus", default="", metavar="LIST", help="GPUs to check for, such as `8x H100` (default: this machine's)"
    )
    parser.add_argument(
        "--gpu-driver",
        type=_version,
        metavar="VERSION",
        help="NVIDIA driver to check for, such as `550.54.14` (default: this machine's)",
    )


def _count(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 1_000_000:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 on")
    return int(text)


def _version(text: str) -> str:
    if not re.fullmatch(r"\d+(\.\d+)*", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a version such as 550.54.14")
    return text


def add_command(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("job", nargs=argparse.REMAINDER, metavar="-- CMD ...", help="the job's command line")


def job_command(arguments: argparse.Namespace) -> list[str]:
    """The command after `--`. Raises SettingsError when there is none."""
    command = list(arguments.job)
    if command[:1] == ["--"]:
        command = command[1:]
    if not command:
        raise SettingsError("no command given: write it after `--`, e.g. `pharoah run -- python train.py`")
    return command


def settings_of(arguments: argparse.Namespace, unreadable: Callable[[str], None] | None = None) -> Settings:
    """As `Settings.load` gives them, with the options of the command before all. Raises SettingsError."""
    names = (
        "gate",
        "endpoint",
        "node_socket",
        "verdict_file",
        "dry_run_timeout_seconds",
        "allow_unprotected_dry_run",
        "allow_beside_job",
        "step_file",
    )
    return Settings.load(unreadable=unreadable, **{name: getattr(arguments, name, None) for name in names})


@dataclass
class ShutdownTime:
    """How long the end of a job may still be delayed by us; it begins to run out when somebody asks."""

    seconds: float = 0.0
    _began_at: float | None = None

    def get_remaining(self) -> float:
        """Seconds."""
        self._began_at = time.monotonic() if self._began_at is None else self._began_at
        return max(0.0, self._began_at + self.seconds - time.monotonic())


@contextlib.contextmanager
def sidecar(settings: Settings, shutdown: ShutdownTime | None = None, *, speaks: bool = False) -> Iterator[SidecarLink]:
    """A sidecar of our own, and a connection that keeps it alive. Afterwards it may take what is left of the `shutdown`
    time. One that `speaks` says itself what changes while the job runs. Raises OSError when it does not start."""
    shutdown = shutdown or ShutdownTime(settings.shutdown_timeout_seconds)
    folder = private_folder()
    path = folder / "sidecar.sock"
    words = os.dup(STANDARD_ERROR) if speaks and sys.stderr is not None else None
    try:
        process = start_sidecar(path, settings, words=words)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    finally:
        if words is not None:
            os.close(words)
    try:
        wait_for(path, process, START_SECONDS)
        with contextlib.closing(SidecarLink(str(path), settings.timeout_seconds)) as link:
            yield link
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(shutdown.get_remaining())
    finally:
        process.kill()  # it has had its time; an ended process does not mind
        with contextlib.suppress(subprocess.TimeoutExpired):  # only a process that hangs in the kernel outlives SIGKILL
            process.wait(_KILLED_SECONDS)
        shutil.rmtree(folder, ignore_errors=True)


def dry_run_of(
    arguments: argparse.Namespace,
    settings: Settings,
    command: Sequence[str] = (),
    *,
    record_code: bool = False,
    change: Mitigation | None = None,
    wall_seconds: float | None = None,
) -> DryRun:
    """A dry run of the job, or of another command line in its place; `wall_seconds` as in `dry_run`. Raises
    UnknownReason."""
    command = command or job_command(arguments)
    return dry_run(
        [shutil.which(command[0]) or command[0], *command[1:]],
        settings.dry_run_timeout_seconds,
        nodes=arguments.nnodes,
        processes=arguments.nproc_per_node,
        record_code=record_code,
        change=change,
        allow_unprotected=settings.allow_unprotected_dry_run,
        gpus=arguments.gpus,
        gpu_driver=arguments.gpu_driver or "",
        wall_seconds=wall_seconds,
    )


def exit_code(verdict: Verdict, arguments: argparse.Namespace, settings: Settings) -> int:
    """0, or why the job must not start."""
    if settings.gate == LaunchGate.BLOCK and verdict.blocking:
        return INCOMPATIBLE
    if arguments.require_online and not verdict.epoch:
        return OFFLINE
    if arguments.strict and verdict.status in (VerdictStatus.UNKNOWN, VerdictStatus.PENDING):
        return STRICT
    return 0


def inside_pharoah(link: SidecarLink, command: Sequence[str], dry: DryRun | None = None) -> dict[str, str]:
    """Environment that lets ranks find the sidecar, and scripts be watched without an edit, as `dry` has found them.

    Where `site` is not read, nothing would take the folder of our hook out of the search path again.
    """
    variables = {SIDECAR: link.path, **({SERVES: "1"} if dry and dry.fingerprint.serves else {})}
    if not skips_site(command):
        path = os.environ.get("PYTHONPATH", "")
        variables["PYTHONPATH"] = f"{_INJECTED}{os.pathsep}{path}" if path else str(_INJECTED)
    return variables


def write_verdict(verdict: Verdict, settings: Settings) -> None:
    """Write the verdict for a scheduler, if a file was given. A file that cannot be written does not stop the job."""
    if settings.verdict_file:
        verdict.write_or_say(settings.verdict_file, say)
