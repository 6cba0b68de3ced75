"""The arguments of torchrun, parsed by torch itself.

Imports torch, so only the child of a dry run imports it.
"""

from __future__ import annotations

from argparse import Namespace
from dataclasses import replace
from typing import NoReturn

from torch.distributed.run import get_args_parser, parse_min_max_nnodes

from pharoah._errors import UnknownReason
from pharoah.capture.hardware import simulated_gpus
from pharoah.dryrun.command_line import Launcher, Program, positive_number, process_count


def without_launcher(program: Program) -> Program:
    """The program that a launcher starts as its ranks. Raises UnknownReason when the launcher's arguments are wrong."""
    options = _parsed(program)
    return replace(
        program,
        arguments=_script(options),
        launcher=Launcher.NONE,
        nodes=program.nodes or _nodes(options.nnodes),
        processes=program.processes or process_count(options.nproc_per_node, simulated_gpus()),
    )


def _parsed(program: Program) -> Namespace:
    parser = get_args_parser()
    if program.launcher is Launcher.TORCH_DISTRIBUTED_LAUNCH:
        parser.add_argument("--use-env", "--use_env", action="store_true")
    parser.error = _refuse  # type: ignore[method-assign]
    return parser.parse_args(program.arguments)


def _refuse(message: str) -> NoReturn:
    raise UnknownReason(f"cannot dry-run the launcher: {message}")


def _script(options: Namespace) -> tuple[str, ...]:
    if options.no_python:
        raise UnknownReason(f"cannot dry-run `{options.training_script}`: --no-python says that it is not Python")
    local_rank = [] if getattr(options, "use_env", True) else ["--local-rank=0"]
    module = ["-m"] if options.module else []
    return (*module, options.training_script, *local_rank, *options.training_script_args)


def _nodes(value: str) -> int:
    """The most nodes that an elastic job (`2:8`) may have."""
    try:
        return positive_number("--nnodes", str(parse_min_max_nnodes(value)[1]))
    except (ValueError, RuntimeError):
        raise UnknownReason(f"--nnodes={value}: not a number of nodes") from None
