"""`torchrun ...` and `python -m torch.distributed.run ...`: its arguments are parsed by torch itself."""

from __future__ import annotations

import os
from argparse import ArgumentParser
from collections.abc import Sequence
from dataclasses import replace
from typing import NoReturn

from pharoah._errors import UnknownReason
from pharoah.capture.hardware import list_simulated_gpus
from pharoah.launchers._launcher import Launcher, python_beside
from pharoah.launchers._options import before_program, value_of
from pharoah.launchers._program import (
    PER_GPU,
    PER_GPU_OR_CPU,
    Launch,
    Program,
    count_or_one,
    cpu_count,
    positive_number,
    process_count,
)


def launch_with(words: Sequence[str], launcher: str) -> Launch:
    """`words` are those of torchrun; `launcher` names who parses them. The number of processes on a node is read here
    already, where the command line gives it: the sidecar waits for so many ranks."""
    asked = value_of(before_program(words[1:]), "--nproc-per-node") or os.environ.get("PET_NPROC_PER_NODE")
    count = cpu_count() if asked in ("cpu", PER_GPU_OR_CPU) else count_or_one(asked)
    program = Program(tuple(words[1:]), launcher)
    return Launch(python_beside(words[0]), program, processes_here=count, one_per_gpu=asked in PER_GPU)


def _launch(words: Sequence[str]) -> Launch:
    return launch_with(words, "torchrun")


def first_process(program: Program, *, gives_local_rank: bool = False) -> Program:
    """The program that torchrun starts as its ranks. Raises UnknownReason when its arguments are wrong."""
    from torch.distributed.run import get_args_parser

    parser = get_args_parser()
    if gives_local_rank:
        parser.add_argument("--use-env", "--use_env", action="store_true")
    refuse_by_reason(parser, "torchrun")
    options = parser.parse_args(program.arguments)
    if options.no_python:
        raise UnknownReason(f"cannot dry-run `{options.training_script}`: --no-python says that it is not Python")
    local_rank = ["--local-rank=0"] if gives_local_rank and not options.use_env else []
    module = ["-m"] if options.module else []
    return replace(
        program,
        arguments=(*module, options.training_script, *local_rank, *options.training_script_args),
        launcher="",
        nodes=program.nodes or _nodes(options.nnodes),
        processes=program.processes or process_count(options.nproc_per_node, list_simulated_gpus()),
    )


def refuse_by_reason(parser: ArgumentParser, name: str) -> None:
    """Let a parser of a library raise UnknownReason instead of ending the process."""

    def refuse(message: str) -> NoReturn:
        raise UnknownReason(f"cannot dry-run `{name} ...`: {message}")

    parser.error = refuse  # type: ignore[method-assign]


def _nodes(value: str) -> int:
    """The most nodes that an elastic job (`2:8`) may have."""
    from torch.distributed.run import parse_min_max_nnodes

    try:
        return positive_number("--nnodes", str(parse_min_max_nnodes(value)[1]))
    except (ValueError, RuntimeError):
        raise UnknownReason(f"--nnodes={value}: not a number of nodes") from None


TORCHRUN = Launcher(
    "torchrun", "the ranks of a job by torchrun", ("torchrun",), _launch, ("torch.distributed.run",), first_process
)
