"""What a command line launches: a Python program, and how many processes of it there will be."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pharoah._errors import UnknownReason

_PYTHON_FLAGS = ("-u", "-O", "-B", "-E", "-s")
_LAUNCHERS = ("torch.distributed.run", "torch.distributed.launch")
_LAUNCHER_FLAGS = {"--standalone", "--no-python", "--run-path", "--use-env", "--virtual-local-rank", "-h", "--help"}
"""Options of torchrun that take no value; all others take one."""


@dataclass(frozen=True)
class Launch:
    """`python` runs `program` on `nodes` x `processes` ranks."""

    python: str
    program: tuple[str, ...]
    """`script.py args` or `-m module args`."""
    nodes: int = 1
    processes: int = 1
    """On each node."""
    distributed: bool = False
    """Whether a launcher tells every process its rank."""

    def on(self, nodes: int | None, processes: int | None) -> Launch:
        """The same program in another world; None leaves a number as the command line has it."""
        if nodes is None and processes is None:
            return self
        return replace(self, nodes=nodes or self.nodes, processes=processes or self.processes, distributed=True)

    def environment(self) -> dict[str, str]:
        """What a launcher would tell the first process of the first node; nothing without a launcher."""
        if not self.distributed:
            return {}
        ranks = self.nodes * self.processes
        return {
            "RANK": "0", "LOCAL_RANK": "0", "GROUP_RANK": "0", "ROLE_RANK": "0", "WORLD_SIZE": str(ranks),
            "LOCAL_WORLD_SIZE": str(self.processes), "GROUP_WORLD_SIZE": str(self.nodes), "ROLE_WORLD_SIZE": str(ranks),
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500", "TORCHELASTIC_RUN_ID": "dry-run",
            "TORCHELASTIC_RESTART_COUNT": "0", "TORCHELASTIC_MAX_RESTARTS": "0",
        }  # fmt: skip


def launch_of(command: Sequence[str]) -> Launch:
    """Read `python [-m] ...`, `torchrun ...` or `python -m torch.distributed.run ...`. Raises UnknownReason."""
    words = list(command)
    name = Path(words[0]).name if words else ""
    if name == "torchrun":
        return _launched(_python_beside(words[0]), words[1:])
    if "python" not in name:
        raise UnknownReason("the command is neither `python script.py ...` nor `torchrun ...`: nothing to dry-run")
    program = words[1:]
    while program and program[0] in _PYTHON_FLAGS:
        program.pop(0)
    if program[:1] == ["-m"] and program[1:2] and program[1] in _LAUNCHERS:
        return _launched(words[0], program[2:])
    if not program or (program[0].startswith("-") and program[0] != "-m"):
        raise UnknownReason(f"cannot dry-run `{' '.join(words[:3])} ...`: no script or module in it")
    return Launch(words[0], tuple(program))


def _launched(python: str, words: list[str]) -> Launch:
    """What torchrun makes of its arguments."""
    counts = {"--nnodes": "1", "--nproc-per-node": "1"}
    module = False
    while words and words[0].startswith("-"):
        option, equals, value = words.pop(0).partition("=")
        option = option.replace("_", "-")
        if option in ("-m", "--module"):
            module = True
        elif option not in _LAUNCHER_FLAGS:
            value = value if equals else (words.pop(0) if words else "")
            counts[option] = value
    if not words:
        raise UnknownReason("cannot dry-run the launcher: no script or module in its arguments")
    program = ("-m", *words) if module else tuple(words)
    nodes = _count("--nnodes", counts["--nnodes"].rpartition(":")[2])  # elastic `2:8`: the most
    return Launch(python, program, nodes, _processes(counts["--nproc-per-node"]), distributed=True)


def _processes(value: str) -> int:
    if value in ("gpu", "auto", "cpu"):
        from pharoah.capture.hardware import gpu_names

        return max(1, len(gpu_names())) if value != "cpu" else os.cpu_count() or 1
    return _count("--nproc-per-node", value)


def _count(option: str, value: str) -> int:
    if not re.fullmatch(r"[1-9]\d{0,5}", value):
        raise UnknownReason(f"{option}={value}: not a number of {'nodes' if 'nodes' in option else 'processes'}")
    return int(value)


def _python_beside(launcher: str) -> str:
    """The interpreter that a launcher script belongs to: the one in its folder."""
    beside = Path(shutil.which(launcher) or launcher).with_name("python")
    return str(beside) if beside.exists() else "python"
