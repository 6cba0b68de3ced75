"""Processes that a script starts to train in: what one of them does is done in the dry run's own process.

A worker that shares no queue, pipe or event with the script can only be waited for. So it does its work when the script
waits for it, and the first one that trains ends the dry run. Others are started as always. Runs in the dry-run child
only.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from typing import Any

import torch

from pharoah.dryrun.environment import PROCESSES
from pharoah.torch_names import FakeTensor

_WAITING = "_pharoah_waiting"
"""Attribute of processes that were started and have not done their work."""


def train_in_this_process() -> None:
    """Patch the processes of `multiprocessing` and of torch."""
    start: Any = BaseProcess.start
    join: Any = BaseProcess.join
    share: Any = torch.Tensor.share_memory_
    started = Counter[Any]()
    """Function to how many processes were started that call it."""

    def start_later(self: Any) -> None:
        if _communicates(self):
            start(self)
        else:
            setattr(self, _WAITING, True)
            started[self._target] += 1

    def work_now(self: Any, timeout: float | None = None) -> None:
        if not hasattr(self, _WAITING):
            join(self, timeout)
        elif getattr(self, _WAITING):
            setattr(self, _WAITING, False)
            with _as_one_of(started[self._target]):
                self.run()

    def share_memory(self: Any) -> Any:
        return self if isinstance(self, FakeTensor) else share(self)

    BaseProcess.start, BaseProcess.join = start_later, work_now  # type: ignore[method-assign]
    torch.Tensor.share_memory_ = share_memory  # type: ignore[method-assign]
    torch.multiprocessing.spawn = _spawn  # type: ignore[attr-defined]


def _spawn(fn: Any, args: tuple[Any, ...] = (), nprocs: int = 1, *_: Any, **__: Any) -> None:
    os.environ.setdefault("LOCAL_RANK", "0")
    os.environ.setdefault("LOCAL_WORLD_SIZE", str(nprocs))
    with _as_one_of(nprocs):
        fn(0, *args)


@contextmanager
def _as_one_of(processes: int) -> Iterator[None]:
    """While a worker trains here, the job has so many processes, unless a launcher has started each of them."""
    launched = PROCESSES in os.environ
    if not launched:
        os.environ[PROCESSES] = str(max(1, processes))
    try:
        yield
    finally:
        if not launched:
            os.environ.pop(PROCESSES, None)


def _communicates(process: Any) -> bool:
    """Whether a process got anything to wait for others by, as an argument or as an attribute of its own class."""
    held = vars(process)
    own = (value for name, value in held.items() if not name.startswith("_"))
    given: Iterable[Any] = (*held["_args"], *held["_kwargs"].values(), *own)
    flat = [one for value in given for one in (value if isinstance(value, (list, tuple)) else (value,))]
    return any(_waits(type(one)) for one in flat)


def _waits(kind: type) -> bool:
    """Whether a process can wait for others with such an object. Shared values and locks are there for one, too."""
    shared = kind.__module__ == "multiprocessing.sharedctypes" or kind.__name__ in ("Lock", "RLock")
    return "multiprocessing" in kind.__module__.split(".") and not shared
