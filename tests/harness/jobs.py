"""Jobs on a site: real training scripts as a tenant launches them, and real degradation beside them."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pharoah_benchmarks.faults import FAULTS, Place, Schedule, beside_command
from pharoah_protocol.node_profile import NodeProfile, command_under
from tests.harness.site import Site


class Job:
    """One launch on one node; output and verdict lie in `folder`."""

    def __init__(
        self, site: Site, node: str, command: Sequence[str], folder: Path, *options: str, wrapped: bool = True
    ) -> None:
        """`wrapped`: by `pharoah run`; else the script registers itself, under the node's profile."""
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        options = (*options, "--verdict-file", str(folder / "verdict.json"))
        line = site.under_pharoah(node, command, *options) if wrapped else site.bare(node, command)
        with (folder / "output.txt").open("wb") as output:
            self.process = site.scope.own(
                subprocess.Popen(
                    line,
                    env=site.tenant_environment(node),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                )
            )

    def wait(self, seconds: float = 300.0) -> int:
        return self.process.wait(seconds)

    @property
    def returncode(self) -> int | None:
        return self.process.poll()

    def output(self) -> str:
        return (self._folder / "output.txt").read_text(errors="replace")

    def verdict(self) -> dict[str, Any]:
        """The verdict as a scheduler would read it; empty until there is one."""
        path = self._folder / "verdict.json"
        return json.loads(path.read_text()) if path.exists() else {}

    def verdict_text(self) -> str:
        """The verdict as a person sees it."""
        lines = self.output().splitlines()
        start = next((i for i, line in enumerate(lines) if "VERDICT" in line), 0)
        return "\n".join(line.removeprefix("pharoah  ") for line in lines[start:] if not line.startswith("step"))


def start_cpu_stressor(
    cpus: Sequence[int],
    strength: float,
    ramp_seconds: float = 0.0,
    delay_seconds: float = 0.0,
    seconds: float = 600.0,
) -> subprocess.Popen[bytes]:
    """A copy loop pinned to these cores that takes `strength` (0-1) of their time."""
    place = Place(
        schedule=Schedule(
            dose=strength, onset_seconds=delay_seconds, ramp_seconds=ramp_seconds, began=time.monotonic()
        ),
        pid=os.getpid(),
        folder=Path("/"),
        limit_seconds=delay_seconds + seconds,
    )
    profile = NodeProfile(cpus=tuple(cpus))
    command = command_under(profile, beside_command(FAULTS["cpu_share"], place))
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, env=dict(os.environ))


def losses_identical(left: Path, right: Path) -> bool:
    """Whether two runs wrote the same losses, to the last bit."""
    return left.exists() and right.exists() and left.read_text() == right.read_text() != ""
