"""`deepspeed [options] script.py`: its arguments are parsed by DeepSpeed itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from pharoah._errors import UnknownReason
from pharoah.capture.hardware import simulated_gpus
from pharoah.launchers._launcher import Launcher, python_beside
from pharoah.launchers._options import value_of
from pharoah.launchers._program import Launch, Program, positive_number

_NAME = "deepspeed"


def _launch(words: Sequence[str]) -> Launch:
    if (file := value_of(words[1:], "-H", "--hostfile")) and not Path(file).is_file():
        raise UnknownReason(f"cannot dry-run `deepspeed`: there is no file {file}")
    count = value_of(words[1:], "--num-gpus")
    here = positive_number("--num_gpus", count) if count else 1
    return Launch(python_beside(words[0]), Program(tuple(words[1:]), _NAME), processes_here=here)


def _first_process(program: Program) -> Program:
    """The program that DeepSpeed starts as its first process. Raises UnknownReason."""
    try:
        from deepspeed.launcher import runner
    except ImportError as error:
        raise UnknownReason(f"cannot dry-run `deepspeed`: {error}") from None
    try:
        options = runner.parse_args(list(program.arguments))
        hosts = runner.fetch_hostfile(options.hostfile) or {}
    except (SystemExit, ValueError) as error:
        raise UnknownReason(f"cannot dry-run `deepspeed`: its arguments are wrong ({error})") from None
    if options.no_python:
        raise UnknownReason(f"cannot dry-run `{options.user_script}`: --no_python says that it is not Python")
    local_rank = [] if options.no_local_rank else ["--local_rank=0"]
    module = ["-m"] if options.module else []
    nodes = options.num_nodes if options.num_nodes > 0 else len(hosts) or 1
    here = options.num_gpus if options.num_gpus > 0 else max([*hosts.values(), len(simulated_gpus()), 1])
    return replace(
        program,
        arguments=(*module, options.user_script, *local_rank, *options.user_args),
        launcher="",
        nodes=program.nodes or nodes,
        processes=program.processes or here,
    )


DEEPSPEED = Launcher(
    _NAME,
    "a script on every GPU, by DeepSpeed",
    (_NAME, "ds", "deepspeed.pt"),
    _launch,
    ("deepspeed.launcher.runner",),
    _first_process,
)
