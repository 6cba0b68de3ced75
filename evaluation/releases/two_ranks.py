"""Scripts of two ranks, each with an output of its own: in one pipe the lines of two processes come in any order.

Gloo of some releases prints what it connects, from each rank and piece by piece.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from evaluation.releases.jobs import Script, difference

OUTPUTS = "outputs"
"""The folder into which torchrun writes the outputs of ranks, in one of a random name."""


class TwoRanks(Script):
    """A training script that torchrun starts."""

    def command(self, interpreter: Path) -> list[str]:
        """As people start it who want to read what each rank prints."""
        torchrun = str(interpreter.with_name("torchrun"))
        options = ["--standalone", f"--nproc-per-node={self.ranks}", "--redirects=1", f"--log-dir={OUTPUTS}"]
        return [torchrun, *options, str(self.path)]


def with_own_outputs(scripts: Sequence[Script]) -> list[Script]:
    """The same scripts; those of two ranks with an output for each rank."""
    return [TwoRanks(one.path) if one.ranks > 1 else one for one in scripts]


def difference_by_rank(alone: Mapping[str, Any], under: Mapping[str, Any]) -> str:
    """As `difference`, whatever the folder of the outputs is called."""
    return difference(_renamed(alone), _renamed(under))


def _renamed(run: Mapping[str, Any]) -> Mapping[str, Any]:
    return {**run, "files": {_without_random_name(name): digest for name, digest in run["files"].items()}}


def _without_random_name(name: str) -> str:
    parts = Path(name).parts
    return str(Path(parts[0], *parts[2:])) if parts[0] == OUTPUTS else name
