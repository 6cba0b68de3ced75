"""`python -m evaluation.fingerprints.worker WHAT FAMILIES`: one measurement of `evaluation capture` in its own process.

A dry run patches torch: it can share a process with nothing else, and each has a fork of its own.
Prints one JSON value.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from evaluation.models.forks import in_fork
from evaluation.models.zoo import BASE, DEVICE, FAMILIES, VARIATIONS, Family, Variation, training_step
from pharoah._sidecar_link import SidecarLink
from pharoah.capture import hooks
from pharoah.capture.clock import CAPTURE_AFTER_STEP, StepClock
from pharoah.capture.hardware import DRY_RUN_GPUS, gpu_names
from pharoah.capture.recorder import Recorder, fingerprint
from pharoah_protocol.local_messages import Message
from pharoah_protocol.rank_messages import Capture
from pharoah_protocol.vocabulary import DeviceKind

Step = Callable[[], None]
LARGE = Variation(batch=8, length=64, width=256, heads=4, depth=4, vocabulary=4096)
"""A job with steps of some milliseconds, like real ones."""
ROWS = 512
"""Batch size for models of tabular data, whose rows are small."""


class Sink(SidecarLink):
    """Keeps the fingerprint that a step clock sends. A subclass, so that the type checker holds it to the interface."""

    def __init__(self) -> None:  # without a sidecar
        self.fingerprint: dict[str, Any] | None = None

    def send(self, message: Message) -> bool:
        if isinstance(message, Capture):
            self.fingerprint = json.loads(message.fingerprint)
        return True


def fake(family: Family, variations: str = "") -> dict[str, Any]:
    """Fingerprints of dry steps, by variation; a reason where there is none."""
    # What a family and a dry run import is imported once, and not in every fork.
    with _on_the_cpu():  # a process that has used CUDA cannot be forked
        training_step(family, BASE)
    if os.environ.get(DEVICE) == DeviceKind.CUDA:
        os.environ[DRY_RUN_GPUS] = ",".join(gpu_names())
    import pharoah.dryrun.fake_tensors  # noqa: F401

    return {name: in_fork(partial(_fake_step, family, v)) for name, v in _chosen(variations).items()}


@contextmanager
def _on_the_cpu() -> Iterator[None]:
    device = os.environ.pop(DEVICE, None)
    try:
        yield
    finally:
        if device is not None:
            os.environ[DEVICE] = device


def _fake_step(family: Family, variation: Variation) -> Any:
    from pharoah.dryrun.exploration import UnknownValues
    from pharoah.dryrun.fake_tensors import fake_step
    from pharoah.dryrun.step_boundary import Finished

    try:
        with fake_step(lambda *_: None, UnknownValues(lambda _: None)):
            step, _, _ = training_step(family, variation)
            step()
            step()
    except Finished as finished:
        return json.loads(finished.fingerprint.to_json())
    return None


def real(family: Family, variations: str = "") -> dict[str, Any]:
    """The same steps as a running job captures them; in this process, because a forked process is inert."""
    return {name: _captured(training_step(family, v)[0]) for name, v in _chosen(variations).items()}


def compiled(family: Family) -> Any:
    """The capture of a compiled job."""
    step, _, model = training_step(family, BASE)
    model.compile()
    return _captured(step)


def _captured(step: Step) -> Any:
    sink = Sink()
    hooks.attach(StepClock(sink))
    for _ in range(CAPTURE_AFTER_STEP + 2):
        step()
    hooks.detach()
    return sink.fingerprint


def overhead(family: Family) -> dict[str, float]:
    """Seconds of a plain step, and the seconds capture added to the life of this process."""
    of_tables = family.of_class in ("mlp", "interaction_recommender")
    step, _, _ = training_step(family, replace(LARGE, batch=ROWS) if of_tables else LARGE)
    for _ in range(3):
        step()
    hooks.attach(StepClock(Sink()))
    seconds = [_timed(step) for _ in range(CAPTURE_AFTER_STEP + 9)]
    touched = {CAPTURE_AFTER_STEP - 1, CAPTURE_AFTER_STEP}
    plain = statistics.median(s for at, s in enumerate(seconds) if at not in touched and at > 0)
    return {"step": plain, "extra": sum(seconds[at] - plain for at in touched)}


def detached(_: Family) -> float:
    """Nanoseconds a step pays after capture: both optimizer hooks, timed over many calls."""
    hooks.attach(clock := StepClock(Sink()))
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
    for _step in range(CAPTURE_AFTER_STEP + 3):
        clock.tick("optimizer", optimizer)
    rounds = []
    for _round in range(7):
        began = time.perf_counter_ns()
        for _step in range(20_000):
            clock.optimizer_begins(False)
            clock.tick("optimizer", optimizer)
        rounds.append((time.perf_counter_ns() - began) / 20_000)
    return statistics.median(rounds)


def active(family: Family) -> dict[str, float]:
    """Time of a step seen by each tool over a plain step's, from switching the tool on to having its result.

    Rounds interleaved, medians of paired ratios; a tool that fails on this family is left out.
    """
    step, _, _ = training_step(family, replace(LARGE, length=32, width=64, depth=2))
    tools = _tools()
    ratios: dict[str, list[float]] = {name: [] for name in tools}
    for number in range(12):
        before = _timed(step)
        for name, tool in list(tools.items()):
            try:
                seconds = _timed(partial(tool, step))
            except RuntimeError:
                del tools[name], ratios[name]
            plain = _timed(step)
            if number > 1 and name in ratios:
                ratios[name].append(2 * seconds / (plain + before))
            before = plain
    return {name: statistics.median(values) for name, values in ratios.items()}


def _tools() -> dict[str, Callable[[Step], None]]:
    """Each function runs a step under one tool and produces the result of that tool."""
    from torch.distributed.tensor.debug import CommDebugMode
    from torch.profiler import profile
    from torch.utils.flop_counter import FlopCounterMode

    def pharoah(step: Step) -> None:
        with Recorder() as recorder:
            step()
        fingerprint(recorder.records, [], compiled=False).to_json()

    def flops(step: Step) -> None:
        with FlopCounterMode(display=False) as mode:
            step()
        mode.get_flop_counts()

    def collectives(step: Step) -> None:
        with CommDebugMode() as mode:
            step()
        mode.get_comm_counts()

    def profiler(step: Step) -> None:
        with profile() as profiled:
            step()
        profiled.events()

    def observer(step: Step) -> None:
        with _Observer():
            step()

    return {
        "pharoah": pharoah,
        "FlopCounterMode": flops,
        "CommDebugMode": collectives,
        "torch.profiler": profiler,
        "ExecutionTraceObserver": observer,
    }


class _Observer(AbstractContextManager[None]):
    def __enter__(self) -> None:
        from torch.profiler import ExecutionTraceObserver

        self._observer = ExecutionTraceObserver()
        self._observer.register_callback(os.devnull)
        self._observer.start()

    def __exit__(self, *_: object) -> None:
        self._observer.stop()
        self._observer.unregister_callback()


def frames(_: Family, watched: str, event: str) -> dict[str, Any]:
    """What Dynamo compiled when the first compiled call, or a new shape, falls into the captured step."""
    from torch._dynamo.utils import counters

    model = torch.nn.Sequential(
        torch.nn.Linear(32, 64), torch.nn.GELU(), torch.nn.LayerNorm(64), torch.nn.Linear(64, 8)
    )
    optimizer = torch.optim.AdamW(model.parameters())
    if watched == "watched":
        hooks.attach(StepClock(Sink()))
    call: Any = model
    for at in range(CAPTURE_AFTER_STEP + 4):
        if at == (CAPTURE_AFTER_STEP if event == "first-call" else 0):
            call = torch.compile(model)
        rows = 7 if event == "new-shape" and at >= CAPTURE_AFTER_STEP else 4
        call(torch.randn(rows, 32)).pow(2).mean().backward()
        optimizer.step()
    return {name: dict(counters[name]) for name in ("frames", "stats", "graph_break", "unimplemented")}


def _timed(step: Step) -> float:
    began = time.perf_counter()
    step()
    if os.environ.get(DEVICE) == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - began


def _chosen(names: str) -> dict[str, Variation]:
    """Variations by name, separated by commas; an empty string chooses all."""
    every = {"base": BASE, **VARIATIONS}
    return {name: every[name] for name in names.split(",")} if names else every


def main() -> None:
    torch.set_num_threads(1)
    what, names, *rest = sys.argv[1:]
    known = {family.name: family for family in FAMILIES}
    results = {name: globals()[what](known[name], *rest) for name in names.split(",")}
    print(json.dumps(results if len(results) > 1 else results[names]))


if __name__ == "__main__":
    main()
