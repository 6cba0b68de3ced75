"""The worker of a data loader is late with every batch."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

from pharoah_benchmarks.faults._fault import Dose, Effect, Fault, Schedule
from pharoah_benchmarks.micro import Resource
from pharoah_system.parent_process import end_with_parent

if TYPE_CHECKING:
    from collections.abc import Iterator


class _Stalled(Effect):
    """Each step waits for a batch of a real data loader with one worker process; the batch itself is not used."""

    def __init__(self, schedule: Schedule) -> None:
        from torch.utils.data import DataLoader, IterableDataset

        class Late(IterableDataset[float]):
            def __iter__(self) -> Iterator[float]:
                while True:
                    time.sleep(schedule.dose * schedule.share())
                    yield 0.0  # a tensor would be shared through a socket, which adds waits of its own

        rank = os.getpid()
        loader = DataLoader(
            Late(),
            batch_size=None,
            num_workers=1,
            prefetch_factor=1,  # one batch ahead: a batch that was made before the onset hides one stall
            multiprocessing_context="fork",  # another one, which a script may have chosen, would have to pickle `Late`
            worker_init_fn=lambda _: end_with_parent(rank),  # torch's own watchdog does not look while it sleeps
        )
        self._batches: Any = iter(loader)

    def before_step(self) -> None:
        next(self._batches)

    def end(self) -> None:
        self._batches = None  # its workers end with it


FAULT = Fault(
    name="loader_stall",
    help="each step first waits for a batch of torch's DataLoader, whose one worker process sleeps before it gives one",
    resource=Resource.STORAGE,
    dose=Dose(unit="seconds that the worker sleeps for each batch", least=0.0001, most=600, examples=(0.02, 0.1)),
    inside=lambda place: _Stalled(place.schedule),
)
