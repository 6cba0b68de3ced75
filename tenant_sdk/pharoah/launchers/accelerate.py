"""`accelerate launch [options] script.py`: its arguments and its configuration file are read by Accelerate itself."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from pharoah._errors import UnknownReason
from pharoah.launchers._gpus import torch_counts_simulated_gpus
from pharoah.launchers._launcher import Launcher, python_beside
from pharoah.launchers._options import before_program, value_of
from pharoah.launchers._program import Launch, Program, count_or_one
from pharoah.launchers.torchrun import refuse_by_reason

_NAME = "accelerate"
_NOT_OURS = {"CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS"}
"""Variables that a dry run sets itself."""


def _launch(words: Sequence[str]) -> Launch:
    rest = list(words[1:])
    if Path(words[0]).name == _NAME:
        if rest[:1] != ["launch"]:
            raise UnknownReason("cannot dry-run `accelerate ...`: only `accelerate launch` starts a job")
        rest = rest[1:]
    own = before_program(rest)
    # The processes are counted over all machines.
    here = max(1, count_or_one(value_of(own, "--num-processes")) // count_or_one(value_of(own, "--num-machines")))
    return Launch(python_beside(words[0]), Program(tuple(rest), _NAME), processes_here=here)


def _first_process(program: Program) -> Program:
    """The program that Accelerate starts as its first process. Sets the variables that configure that process.

    Raises UnknownReason.
    """
    try:
        from accelerate.commands import launch
    except ImportError as error:
        raise UnknownReason(f"cannot dry-run `accelerate launch`: {error}") from None
    parser = launch.launch_command_parser()
    refuse_by_reason(parser, "accelerate launch")
    options = parser.parse_args(program.arguments)
    try:
        with torch_counts_simulated_gpus():
            options, *_ = launch._validate_launch_command(options)
            start = _start(launch, options)
    except (ValueError, OSError, RuntimeError, ImportError) as error:
        raise UnknownReason(f"cannot dry-run `accelerate launch`: {str(error).partition(chr(10))[0]}") from None
    os.environ.update({name: value for name, value in start.variables.items() if name not in _NOT_OURS})
    module = ["-m"] if options.module else []
    direct = replace(program, arguments=(*module, options.training_script, *options.training_script_args), launcher="")
    if not start.is_distributed:
        return direct
    nodes = int(options.num_machines or 1)
    here = max(1, int(options.num_processes or 1) // nodes)
    return replace(direct, nodes=program.nodes or nodes, processes=program.processes or here)


class _Start(NamedTuple):
    """How Accelerate starts the first process."""

    variables: Mapping[str, str]
    is_distributed: bool
    """Whether the ranks of torchrun are started."""


def _start(launch: Any, options: Any) -> _Start:
    if options.tpu and not options.cpu:
        raise UnknownReason("cannot dry-run `accelerate launch --tpu`: only GPUs and CPUs are known")
    if options.use_deepspeed and not options.cpu:
        options.deepspeed_fields_from_accelerate_config = ""
        return _Start(launch.prepare_deepspeed_cmd_env(options)[1], is_distributed=True)
    if (options.use_fsdp or options.use_megatron_lm or options.multi_gpu) and not options.cpu:
        return _Start(launch.prepare_multi_gpu_env(options), is_distributed=True)
    return _Start(launch.prepare_simple_launcher_cmd_env(options)[1], is_distributed=False)


ACCELERATE = Launcher(
    _NAME,
    "a script by Accelerate, with its configuration file",
    (_NAME, "accelerate-launch"),
    _launch,
    ("accelerate.commands.launch",),
    _first_process,
)
