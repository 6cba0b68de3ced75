"""Looks at the job's processes once a second, and lets detectors judge what it sees.

The looks are taken in a thread of their own, and file systems are read in others (`free_space`): what does not answer
must stop neither the sidecar nor the other looks.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from pharoah._alert import Alert
from pharoah.local_alerts import AlertBook, Condition, Detector, NodeForecast, View, Watching, detectors
from pharoah.local_alerts._lateness import lateness
from pharoah.local_alerts._readings import (
    MachineReading,
    ProcessReading,
    SteppingThreads,
    cores_of,
    read_machine,
    read_process,
    workers_of,
)
from pharoah.sidecar.free_space import FileSystems, FreeSpace
from pharoah.sidecar.node_forecaster import NodeForecaster
from pharoah.sidecar.rank_processes import RankProcesses, Standing
from pharoah_protocol.agent_messages import SignalReading
from pharoah_protocol.rank_messages import CollectiveStart

log = logging.getLogger("pharoah.sidecar")

LOOK_SECONDS = 1.0
WORKERS_EVERY_LOOKS = 5
"""How often it is looked for processes that ranks have started."""
SIGNALS_EVERY_SECONDS = 2.0
RECORDS_EVERY_SECONDS = 10.0
"""How often ranks are asked for their flight records while steps seem to take longer: an answer takes milliseconds."""
MAX_STEPS = 100_000
"""Steps of one rank between two looks that are kept: a step takes ten microseconds at least."""
NANOSECONDS = 1e9


class _Look(NamedTuple):
    """What one look has read."""

    at: float
    unix: float
    processes: dict[int, ProcessReading]
    machine: MachineReading


class _AtWork(NamedTuple):
    """One detector that watches the job."""

    detector: Detector
    watching: Watching


class LocalWatch:
    """Owns a thread, those of file systems, and a few tasks between the first `rank_connected` and `stop`. All else is
    done in the event loop."""

    def __init__(
        self,
        run_id: bytes,
        deliver: Callable[[Alert], None],
        request_records: Callable[[], None],
        measuring: Callable[[], bool],
        ask_signals: Callable[[], Awaitable[Sequence[SignalReading]]],
        distributed: bool,
        serves: Callable[[], bool] = lambda: False,
        forecaster: NodeForecaster | None = None,
        look_seconds: float = LOOK_SECONDS,
    ) -> None:
        """`deliver` gets every alert. `request_records` asks all ranks for their flight records, whose starts come to
        `take_calls`. `measuring`: whether the provider runs micro-benchmarks beside the job. `ask_signals` gives what
        the agent of the node shows. `distributed`: whether the job runs on several nodes. `serves`: whether it answers
        requests. `forecaster` forecasts failures of the node."""
        self._deliver, self._measuring, self._distributed, self._serves = deliver, measuring, distributed, serves
        self._look_seconds = look_seconds
        self.expected_step_seconds = 0.0
        """What a step should take on this node; 0 while that is not known."""
        self._ask_signals, self._signals = ask_signals, tuple[SignalReading, ...]()
        self._forecaster = forecaster
        self._forecast: NodeForecast | None = None
        self._asking: list[asyncio.Task[None]] = []
        """They ask the agent again and again."""
        self._request_records, self._requested_at = request_records, 0.0
        self._starts: dict[int, Sequence[CollectiveStart]] = {}
        self._book = AlertBook(run_id.hex())
        self._watching: list[_AtWork] = []
        self._ranks = RankProcesses()
        self._steps: dict[int, list[float]] = defaultdict(list)
        self._threads = dict[int, SteppingThreads]()
        """By process, where it steps in other threads than its main one."""
        self._file_systems = FileSystems(lambda: self._ranks.by_rank, look_seconds)
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def rank_connected(self, rank: int, process: int) -> None:
        """A rank has connected from a process of this machine."""
        self._watch_anew_after(self._ranks.add_process(rank, process))
        if self._thread is None:
            loop = asyncio.get_running_loop()
            self._thread = threading.Thread(target=self._run, args=(loop,), name="pharoah-looks", daemon=True)
            self._thread.start()
            self._file_systems.start()
            self._asking = [asyncio.create_task(self._follow_signals())]
            if self._forecaster is not None:
                self._asking.append(asyncio.create_task(self._forecaster.follow(self._collect_forecasts)))

    def note_step(self, rank: int, process: int, durations: Sequence[int], thread: int = 0) -> None:
        """Steps of a rank, in nanoseconds, from a process of this machine. `thread`: the one that steps; 0 for the main
        thread."""
        if self._thread is None or not self._thread.is_alive():
            return
        standing = self._ranks.note_step(rank, process)
        self._watch_anew_after(standing)
        if standing is not Standing.OTHER and thread not in (0, process):
            self._threads.setdefault(process, SteppingThreads(process)).note_step(thread)
        if standing is not Standing.OTHER and len(self._steps[rank]) < MAX_STEPS:
            self._steps[rank] += [duration / NANOSECONDS for duration in durations]

    def _watch_anew_after(self, standing: Standing) -> None:
        """Watch anew where the steps to come are not those of the process before."""
        if standing is Standing.NEXT:
            self.expected_step_seconds = 0.0  # it was predicted for the first program, and another one may run now
        if standing in (Standing.NEW, Standing.NEXT) or self._thread is None:
            self._begin()

    def _begin(self) -> None:
        """Watch anew. What looks at the machine goes on, so that a rank that starts again ends none of its alerts."""
        going = {one.detector.name: one.watching for one in self._watching if one.detector.of_machine}
        self._watching = [_AtWork(one, going.get(one.name) or one.start()) for one in detectors()]
        self._steps.clear()
        self._starts.clear()

    def take_calls(self, rank: int, starts: Sequence[CollectiveStart]) -> None:
        """When a rank called its last collectives."""
        if starts:
            self._starts[rank] = starts

    def stop(self) -> None:
        """The job has ended."""
        self._stopped.set()
        self._file_systems.stop()
        for task in self._asking:
            task.cancel()

    def _collect_forecasts(self, forecast: NodeForecast | None) -> None:
        self._forecast = forecast

    async def _follow_signals(self) -> None:
        while True:
            self._signals = tuple(await self._ask_signals())
            await asyncio.sleep(SIGNALS_EVERY_SECONDS)

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        workers: dict[int, tuple[int, ...]] = {}
        looks = 0
        while not self._stopped.wait(self._look_seconds):
            try:
                processes = self._ranks.by_rank
                if looks % WORKERS_EVERY_LOOKS == 0:
                    workers = {rank: workers_of(process) for rank, process in processes.items()}
                looks += 1
                found = _look(processes, workers, self._threads, self._file_systems.newest())
            except Exception:
                log.exception("this machine could not be looked at; no more alerts of its own will come")
                return
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(self._judge, found)

    def _judge(self, look: _Look) -> None:
        view = View(
            at=look.at,
            unix=look.unix,
            steps=self._take(),
            processes=look.processes,
            machine=look.machine,
            distributed=self._distributed or len(look.processes) > 1,
            measuring=self._measuring(),
            signals=self._signals,
            forecast=self._forecast,
            expected_step_seconds=self.expected_step_seconds,
            lateness=lateness(self._starts),
        )
        holding: list[Condition] = []
        wanted = False
        serves = self._serves()
        for one in list(self._watching):
            if serves and one.detector.judges_steps:
                continue
            try:
                holding += one.watching.look(view)
                wanted |= one.watching.wants_lateness
            except Exception:
                log.exception("the detector %s failed and is left out from now on", one.detector.name)
                self._watching.remove(one)
        if wanted and len(look.processes) > 1:
            self._ask_for_records(look.at)
        for alert in self._book.update(look.at, look.unix, holding):
            self._deliver(alert)

    def _ask_for_records(self, now: float) -> None:
        if now - self._requested_at >= RECORDS_EVERY_SECONDS:
            self._requested_at = now
            self._request_records()

    def _take(self) -> Mapping[int, Sequence[float]]:
        steps, self._steps = self._steps, defaultdict(list)
        return steps


def _look(
    processes: Mapping[int, int],
    workers: Mapping[int, Sequence[int]],
    threads: Mapping[int, SteppingThreads],
    space: FreeSpace,
) -> _Look:
    read = {
        rank: read_process(process, workers.get(rank, ()), threads=threads.get(process))
        for rank, process in processes.items()
    }
    living = {rank: reading for rank, reading in read.items() if reading is not None}
    of_job = [process for rank, process in processes.items() if rank in living]
    cores = set[int]().union(*map(cores_of, of_job))
    machine = read_machine(of_job[0], cores) if of_job else MachineReading()
    machine = replace(machine, free_bytes=space.free_bytes, silent_folders=space.silent)
    return _Look(time.monotonic(), time.time(), living, machine)
