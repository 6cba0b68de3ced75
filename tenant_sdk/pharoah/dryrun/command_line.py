"""What a command line starts: a Python program, directly or through torchrun.

The parent of a dry run only recognises the program. The child, which has torch, parses the arguments of torchrun with
torch's own parser (`pharoah.dryrun.torch_launcher`).
"""

from __future__ import annotations

import getopt
import json
import os
import re
import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from pharoah._errors import UnknownReason
from pharoah.capture.hardware import gpu_names


class Launcher(StrEnum):
    """The program that starts the ranks of a job."""

    NONE = "none"
    TORCHRUN = "torchrun"
    TORCH_DISTRIBUTED_LAUNCH = "torch.distributed.launch"
    """The deprecated form of torchrun. It passes `--local-rank` to the script unless `--use-env` is given."""


_LAUNCHER_MODULES = {
    "torch.distributed.run": Launcher.TORCHRUN,
    "torch.distributed.launch": Launcher.TORCH_DISTRIBUTED_LAUNCH,
}
_INTERPRETER_OPTIONS = re.compile(r"-([BEIOPRSbdiqsuvx]*)(?:([WXm])(.*))?", re.DOTALL)
"""Options of the interpreter (`python --help`): several letters may share one dash, the last one may have a value."""
_ENV_OPTIONS = (
    "iu:C:S:v",
    ["ignore-environment", "unset=", "chdir=", "split-string=", "debug"],
)
"""Options of `env` that start a command, for getopt, short and long."""
_KEPT_OPTIONS = "OWXb"
"""Options that can change what a program computes. The dry run passes them on; all others change output and imports."""


@dataclass(frozen=True)
class Program:
    """What the child of a dry run has to run."""

    arguments: tuple[str, ...]
    """`script.py args` or `-m module args`; with a launcher the launcher's arguments."""
    launcher: Launcher = Launcher.NONE
    nodes: int | None = None
    """Number of nodes; None leaves it to the command line."""
    processes: int | None = None
    """Number of processes on each node; None leaves it to the command line."""
    times_nodes: int = 1
    """Factor on the number of nodes."""

    @property
    def is_distributed(self) -> bool:
        """Whether every process gets a rank."""
        return self.launcher is not Launcher.NONE or self.nodes is not None or self.processes is not None

    def rank_environment(self) -> dict[str, str]:
        """What a launcher would set for the first process of the first node; nothing for a job without ranks."""
        if not self.is_distributed:
            return {}
        nodes, processes = (self.nodes or 1) * self.times_nodes, self.processes or 1
        ranks = nodes * processes
        return {
            "RANK": "0", "LOCAL_RANK": "0", "GROUP_RANK": "0", "ROLE_RANK": "0", "WORLD_SIZE": str(ranks),
            "LOCAL_WORLD_SIZE": str(processes), "GROUP_WORLD_SIZE": str(nodes), "ROLE_WORLD_SIZE": str(ranks),
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500", "TORCHELASTIC_RUN_ID": "dry-run",
            "TORCHELASTIC_RESTART_COUNT": "0", "TORCHELASTIC_MAX_RESTARTS": "0",
        }  # fmt: skip

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Program:
        data: dict[str, Any] = json.loads(text)
        return cls(**{**data, "arguments": tuple(data["arguments"]), "launcher": Launcher(data["launcher"])})


@dataclass(frozen=True)
class Launch:
    """A program, the interpreter that runs it and the environment it starts in."""

    python: str
    program: Program
    options: tuple[str, ...] = ()
    """Options of the interpreter that change what the program computes."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Variables that `env` adds."""
    removed: frozenset[str] = frozenset()
    """Variables that `env` removes."""
    clears_environment: bool = False
    """Whether `env` removes all other variables."""
    folder: str | None = None
    """The folder that `env` changes to."""

    def on(self, nodes: int | None, processes: int | None) -> Launch:
        """The same program on other nodes; None leaves a number to the command line."""
        if nodes is None and processes is None:
            return self
        program = self.program
        program = replace(program, nodes=nodes or program.nodes, processes=processes or program.processes)
        return replace(self, program=program)

    def on_more_nodes(self, factor: int) -> Launch:
        """The same program on `factor` times as many nodes."""
        program = self.program
        if not program.is_distributed:
            program = replace(program, nodes=1)
        return replace(self, program=replace(program, times_nodes=factor))

    def environment(self) -> dict[str, str]:
        """The environment in which the job's first process starts."""
        inherited = {} if self.clears_environment else os.environ
        return {**{k: v for k, v in inherited.items() if k not in self.removed}, **self.variables}

    @property
    def processes(self) -> int:
        """Number of processes on this node, as far as the command line shows it without torch's parser."""
        program = self.program
        if program.processes or program.launcher is Launcher.NONE:
            return program.processes or 1
        match = re.search(r"(?:^|\0)--nproc[-_]per[-_]node[=\0]([^\0]+)", "\0".join(program.arguments))
        return process_count(match[1] if match else "1", gpu_names())


def process_count(value: str, gpus: Sequence[str]) -> int:
    """The number of processes that `--nproc-per-node` asks for on a node with these GPUs. Raises UnknownReason."""
    if value in ("gpu", "auto"):
        return max(1, len(gpus))
    return os.cpu_count() or 1 if value == "cpu" else positive_number("--nproc-per-node", value)


def positive_number(option: str, value: str) -> int:
    """Raises UnknownReason."""
    if not re.fullmatch(r"[1-9]\d{0,5}", value):
        raise UnknownReason(f"{option}={value}: not a number of {'nodes' if 'nodes' in option else 'processes'}")
    return int(value)


def launch_of(command: Sequence[str]) -> Launch:
    """Recognise `[env ...] python [-m] ...`, `torchrun ...` or `python -m torch.distributed.run ...`.

    Raises UnknownReason for every other command.
    """
    words = list(command)
    name = Path(words[0]).name if words else ""
    if name == "env":
        return _from_env(words)
    if name == "torchrun":
        return Launch(_python_beside(words[0]), Program(tuple(words[1:]), Launcher.TORCHRUN))
    if "python" not in name:
        raise UnknownReason(
            "the command is neither `python script.py ...` nor `torchrun ...`: only those can be dry-run"
        )
    options, program = _interpreter_options(words[1:])
    if program[:1] == ["-m"] and (launcher := _LAUNCHER_MODULES.get("".join(program[1:2]))):
        return Launch(words[0], Program(tuple(program[2:]), launcher))  # the launcher starts ranks without its options
    if not program or (program[0].startswith("-") and program[0] != "-m") or program == ["-m"]:
        raise UnknownReason(f"cannot dry-run `{' '.join(words[:3])} ...`: no script or module in it")
    return Launch(words[0], Program(tuple(program)), tuple(options))


def _interpreter_options(words: list[str]) -> tuple[list[str], list[str]]:
    """Split the arguments of an interpreter into the options to keep, and the program with its arguments."""
    kept: list[str] = []
    rest = list(words)
    while rest and len(rest[0]) > 1 and (match := _INTERPRETER_OPTIONS.fullmatch(rest[0])):
        letters, last, value = match.groups()
        kept += [f"-{letter}" for letter in letters if letter in _KEPT_OPTIONS]
        if last == "m":
            return kept, ["-m", *filter(None, [value]), *rest[1:]]
        if last and not value:
            value, rest = "".join(rest[1:2]), rest[1:]
        kept += [f"-{last}{value}"] if last else []
        rest = rest[1:]
    return kept, rest


def skips_site(command: Sequence[str]) -> bool:
    """Whether a command line starts Python without its module `site` (`-S`), also one that cannot be dry-run."""
    words = iter(command)
    for word in words:
        if "python" in Path(word).name:
            break
    for word in words:
        if len(word) < 2 or not (match := _INTERPRETER_OPTIONS.fullmatch(word)):
            return False
        letters, last, value = match.groups()
        if "S" in letters:
            return True
        if last and not value:
            next(words, None)  # the option's value
    return False


def _from_env(words: list[str]) -> Launch:
    """The command that `env` starts, in the environment that it makes. Raises UnknownReason."""
    try:
        options, rest = getopt.getopt(words[1:], *_ENV_OPTIONS)
    except getopt.GetoptError as error:
        raise UnknownReason(f"cannot dry-run `{' '.join(words[:3])} ...`: env: {error}") from None
    removed, folder, clears, variables = set[str](), None, False, dict[str, str]()
    for option, value in options:
        match option:
            case "-u" | "--unset":
                removed.add(value)
            case "-C" | "--chdir":
                folder = value
            case "-i" | "--ignore-environment":
                clears = True
            case "-S" | "--split-string":
                return _from_env([words[0], *shlex.split(value), *rest])
    if rest[:1] == ["-"]:
        clears, rest = True, rest[1:]
    while rest and "=" in rest[0]:
        name, _, value = rest.pop(0).partition("=")
        variables[name] = value
    launch = launch_of(rest)
    return replace(
        launch,
        variables={**variables, **launch.variables},
        removed=launch.removed | removed,
        clears_environment=clears or launch.clears_environment,
        folder=launch.folder or folder,
    )


def _python_beside(launcher: str) -> str:
    """The interpreter that a launcher script belongs to: the one in its folder."""
    beside = Path(shutil.which(launcher) or launcher).with_name("python")
    return str(beside) if beside.exists() else "python"
