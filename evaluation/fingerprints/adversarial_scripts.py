"""Scripts that are hard to run twice: each must leave the same traces with Pharoah as without.

Every script runs plainly and under `pharoah run` (no provider, so that the dry run is all Pharoah adds), each in a
folder of its own. Compared: standard output, exit code, the files left behind, connections that reached a listener
outside, ports still open, processes still alive.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from evaluation.figures import Figures

DRY_RUN_SECONDS = 8.0
FIXED_PORT = 47653
FOLDER = Path(__file__).parents[1] / "scripts" / "adversarial"
SCRIPTS = sorted(path for path in FOLDER.glob("*.py") if path.name != "small.py")


@dataclass(frozen=True)
class Traces:
    """What one run of a script left behind."""

    output: str
    code: int
    files: dict[str, str]
    connections: int
    ports: tuple[str, ...]


def measure(figures: Figures) -> None:
    same = 0
    for script in SCRIPTS:
        plain, watched = (traces(script, under) for under in (False, True))
        same += plain == watched
        if plain != watched:
            print(f"  {script.stem}: {_difference(plain, watched)}", flush=True)
    figures.add("adversarial_scripts", len(SCRIPTS), ">= 30", len(SCRIPTS) >= 30)
    figures.ratio("adversarial_identical_ratio", same, len(SCRIPTS), 1.0)


def traces(script: Path, under_pharoah: bool) -> Traces:
    """Run a script and collect what it leaves behind."""
    with tempfile.TemporaryDirectory() as folder, _Listener() as outside:
        Path(folder, "input.txt").write_text("input")
        for path in (script, FOLDER / "small.py"):
            shutil.copy(path, folder)
        command = [sys.executable, script.name]
        if under_pharoah:
            limit = ["--dry-run-timeout-seconds", str(DRY_RUN_SECONDS)]
            command = [sys.executable, "-m", "pharoah", "run", *limit, "--", *command]
        environ = {**os.environ, "OUTSIDE": str(outside.port), "FIXED": str(FIXED_PORT), "PYTHONDONTWRITEBYTECODE": "1"}
        process = subprocess.Popen(
            command, cwd=folder, env=environ, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
        )
        output, _ = process.communicate(timeout=120)
        time.sleep(0.05)
        left = {str(p.relative_to(folder)): _digest(p) for p in sorted(Path(folder).rglob("*"))}
        code = process.returncode if process.returncode >= 0 else 128 - process.returncode
        try:
            os.killpg(process.pid, signal.SIGKILL)
            left["a process"] = "alive"
        except ProcessLookupError:
            pass
        return Traces(hashlib.sha256(output).hexdigest(), code, left, outside.count, _listening())


class _Listener:
    """Counts connections from the script to the outside."""

    def __init__(self) -> None:
        self.count = 0

    def __enter__(self) -> _Listener:
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.close()

    def _accept(self) -> None:
        try:
            while True:
                self._server.accept()[0].close()
                self.count += 1
        except OSError:
            pass


def _listening() -> tuple[str, ...]:
    """Fixed ports that are still open; the ports of our own listeners change from run to run."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return tuple(row[1] for row in rows if row[3] == "0A" and row[1].endswith(f":{FIXED_PORT:04X}"))


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "folder"


def _difference(plain: Traces, watched: Traces) -> str:
    parts = []
    for field in ("output", "code", "connections", "ports"):
        before, after = getattr(plain, field), getattr(watched, field)
        if before != after:
            parts.append(f"{field} {str(before)[:12]} became {str(after)[:12]}")
    changed = {k for k in plain.files.keys() | watched.files.keys() if plain.files.get(k) != watched.files.get(k)}
    return "; ".join([*parts, *(f"file {name}" for name in sorted(changed))])
