"""`python -m torch.distributed.launch ...`, the deprecated form of torchrun. It passes `--local-rank` to the script
unless `--use-env` is given."""

from __future__ import annotations

from collections.abc import Sequence

from pharoah.launchers._launcher import Launcher
from pharoah.launchers._program import Launch, Program
from pharoah.launchers.torchrun import first_process, launch_with

_NAME = "torch.distributed.launch"


def _launch(words: Sequence[str]) -> Launch:
    return launch_with(words, _NAME)


def _first_process(program: Program) -> Program:
    return first_process(program, gives_local_rank=True)


TORCH_DISTRIBUTED_LAUNCH = Launcher(
    _NAME, "the ranks of a job by the deprecated form of torchrun", (_NAME,), _launch, (_NAME,), _first_process
)
