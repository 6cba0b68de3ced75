"""Makes all attempts in one mode: `python -m evaluation.hardening.sandbox_worker MODE GROUP-SIZE`, prints JSON.

A process of its own, because it leaves the machine's mounts.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from evaluation.hardening.escape_attempts import NEVER_ALONE, all_attempts
from evaluation.hardening.escape_site import SITE, Outside
from evaluation.pages import ROOT
from pharoah._errors import UnknownReason
from pharoah.dryrun import dry_run
from pharoah.dryrun.sandbox_mode import SANDBOX_MODE, SandboxMode
from tests.harness.torch_server import TorchServer


@dataclass(frozen=True)
class Found:
    """What came of the attempts in one mode."""

    attempts: int
    escaped: dict[str, list[str]]
    """The names of a group to what it has changed outside."""
    failed: dict[str, str]
    """The names of a group that was not tried to the end, to what was reported instead."""


ALONE = "alone"
"""In place of a mode: the attempts are made by a plain process, which shows that they would work."""
_SECONDS = 60.0
_SCRIPT = """
import sys
sys.path.insert(0, {root!r})
from evaluation.hardening.escape_attempts import all_attempts
from evaluation.hardening.escape_site import Site
attempts, site = all_attempts(), Site.from_environment()
for name in {names!r}:
    try:
        attempts[name](site)
    except BaseException:
        pass
raise SystemExit("made")
"""


def main() -> None:
    """Print which attempts changed something, which changes that were, and which attempts could not be made."""
    mode, group_size = sys.argv[1], int(sys.argv[2])
    with Outside() as outside, TorchServer() as server:
        os.environ[SITE] = outside.site.to_json()
        os.environ[SANDBOX_MODE] = mode if mode in (SandboxMode.USER, SandboxMode.RULES) else ""
        escaped: dict[str, list[str]] = {}
        failed: dict[str, str] = {}
        names = [name for name in all_attempts() if mode != ALONE or name not in NEVER_ALONE]
        for group in _groups(names, group_size):
            before = outside.look()
            script = outside.folder.parent / f"{outside.folder.name}.py"
            script.write_text(_SCRIPT.format(root=str(ROOT), names=group))
            said = _alone(script) if mode == ALONE else _dry(script, server)
            script.unlink()
            if "with made" not in said and "side effect" not in said:
                failed[", ".join(group)] = said
            after = outside.look()
            if changed := [what for what in before if before[what] != after[what]]:
                escaped[", ".join(group)] = changed
            for pid in outside.left_processes():
                os.kill(pid, signal.SIGKILL)
            for folder in ("/dev/shm", tempfile.gettempdir()):  # what the attempts of a plain process leave there
                with contextlib.suppress(FileNotFoundError):
                    Path(folder, outside.nonce).unlink()
    print(json.dumps(asdict(Found(len(names), escaped, failed))))


def _groups(names: list[str], size: int) -> list[list[str]]:
    return [names[start : start + size] for start in range(0, len(names), size)]


def _dry(script: Path, server: TorchServer) -> str:
    """What a dry run of the script reports."""
    try:
        dry_run([sys.executable, str(script)], _SECONDS, start=server.start)
    except UnknownReason as reason:
        return str(reason)
    return "a fingerprint"


def _alone(script: Path) -> str:
    """What a plain process prints as its last words."""
    # The errors are not a pipe: processes that are left would hold it. Some attempts write to their working directory.
    with tempfile.TemporaryFile() as errors, tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        command, ignored = [sys.executable, str(script)], subprocess.DEVNULL
        subprocess.run(command, stdin=ignored, stdout=ignored, stderr=errors, timeout=_SECONDS, cwd=folder)
        errors.seek(0)
        return f"exited with {errors.read().decode(errors='replace').strip()[-200:]}"


if __name__ == "__main__":
    main()
