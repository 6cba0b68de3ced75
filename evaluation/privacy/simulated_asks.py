"""When the sidecars of simulated runs ask for a validation: the detectors and the rules that every sidecar has.

What the kernel shows of the processes is simulated from the steps of the run. Left out are the detectors that a job of
one rank cannot raise (`late_rank`, `stopped`) and that of memory, whose alerts say that the job itself grows.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import inf

from evaluation.privacy.behaviours import SECONDS, Load
from evaluation.privacy.simulated_nodes import Activity, DeviceState, Shown
from pharoah.local_alerts import AlertBook, Condition, View, Watching, detectors
from pharoah.local_alerts._readings import MachineReading, ProcessReading
from pharoah.sidecar.asked_validation import AskedValidation, calls_for_validation
from pharoah.sidecar.local_watch import SIGNALS_EVERY_SECONDS
from pharoah_protocol.agent_messages import SignalReading
from pharoah_provider.agent.signals import AGENT_SIGNALS, TROUBLE_UNIT

DETECTORS = ("slow_steps", "node_signals")
DISK_EVERY_SECONDS = 10
"""How often the disk is looked at here; sidecars look once a second, which forecasts the same and takes hours here."""
FREE_BYTES = 1e12
JOIN_SECONDS = 0.0
"""Seconds are counted from the moment at which the run joins."""
PAUSE_COMPUTED_RATIO = 0.5
"""How much the main thread computes in a pause: an evaluation computes, and a checkpoint waits for its disk."""
BLOCKED_RATIO = 0.1
"""How often the main thread of a job that is waiting for data is seen to wait for a device."""
MOVED_BYTES = 1e7
"""What a step reads and writes."""
DAEMONS_CORES = 0.02
WORKER_CORES = 0.1
"""What a worker that loads data computes."""


def asked_seconds(
    load: Load,
    activity: Activity,
    states: Sequence[DeviceState],
    shown: Callable[[DeviceState], Shown],
    chance: random.Random,
) -> list[int]:
    """The seconds of a run at which its sidecar asks for a validation, where its user lets it."""
    watching = {name: detectors().entries[name].start() for name in DETECTORS}
    disk = detectors().entries["disk"].start()
    book, asked, found = AlertBook("run"), AskedValidation(), list[int]()
    filling: list[Condition] = []
    for second, view in enumerate(_views(load, activity, chance)):
        if second % SIGNALS_EVERY_SECONDS == 0:
            signals = tuple(_signals(shown(states[second])))
        holding = [*_looked(watching, view, signals)]
        if load.filling_seconds < inf and second % DISK_EVERY_SECONDS == 0:
            free = FREE_BYTES * max(0.0, 1 - second / load.filling_seconds * chance.uniform(0.98, 1.02))
            filling = list(
                disk.look(View(at=view.at, unix=view.at, machine=MachineReading(free_bytes={"/": int(free)})))
            )
        asked.wanted |= any(map(calls_for_validation, book.update(view.at, view.unix, [*holding, *filling])))
        if asked.due(view.at, JOIN_SECONDS):
            found.append(second)
    return found


def _looked(watching: Mapping[str, Watching], view: View, signals: Sequence[SignalReading]) -> Iterator[Condition]:
    yield from watching["slow_steps"].look(view)
    if signals:
        shown = View(at=view.at, unix=view.unix, signals=signals)
        yield from watching["node_signals"].look(shown)


def _signals(shown: Shown) -> Iterator[SignalReading]:
    """What the agent shows the job of a device or of its node, of all that is above zero."""
    for name, value in shown.items():
        signal = AGENT_SIGNALS.entries[name]
        if value:
            yield SignalReading(name, "", value, signal.measures, signal.resource, signal.unit == TROUBLE_UNIT)


def _views(load: Load, activity: Activity, chance: random.Random) -> Iterator[View]:
    """What the sidecar sees in each second."""
    computed, moved = 0.0, 0.0
    for second in range(SECONDS):
        late, works = activity.late[second], activity.works[second]
        ratio = load.computed_ratio / (load.late_data_ratio if late else 1.0) if works else PAUSE_COMPUTED_RATIO
        computed += ratio
        moved += MOVED_BYTES * len(activity.steps[second])
        waits = (late or load.computed_ratio < 0.5) and not load.distributed
        process = ProcessReading(
            computed_seconds=computed,
            main_computed_seconds=computed,
            main_queued_seconds=0.0,
            blocked=waits and chance.random() < BLOCKED_RATIO,
            moved_bytes=int(moved),
            resident_bytes=0,
            worker_seconds=WORKER_CORES * load.workers * second,
            stopped=False,
            worker_bytes=0,
            worker_moved_bytes=0,
            throttled_seconds=0.0,
            data_free_bytes=None,
        )
        machine = MachineReading(busy_seconds=computed + DAEMONS_CORES * second)
        yield View(
            at=float(second),
            unix=float(second),
            steps={0: activity.steps[second]},
            processes={0: process},
            machine=machine,
            distributed=load.distributed,
        )
