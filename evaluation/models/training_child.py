"""`python -m evaluation.models.training_child`: the child process of `training_worker.Worker`. It runs real training.

It reads one order per line from standard input.

An order is `{"what": "memory", "arguments": ["gpt2", "--width", "256"], ...}`; the answer is one line. Each run is a
fork of this process, which has imported everything and computed nothing.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import torch

from evaluation.models.forks import address_space, in_fork
from evaluation.models.zoo import BASE
from evaluation.scripts.train_zoo import add_options, family_named, prepared, train
from pharoah_system.process_memory import data_bytes

STEPS_AT_LEAST = 6
SECONDS_AT_LEAST = 3.0


def memory(arguments: argparse.Namespace) -> int:
    """Bytes of address space by which a run grows at its peak, which the kernel records; all of it is data here.

    No dispatch mode may be active meanwhile: under one, autograd adds gradients into new memory.
    """
    began = address_space().size
    train(arguments)
    return address_space().peak - began


def ends(arguments: argparse.Namespace, limit: int) -> bool:
    """Whether a run ends normally when its data segment may grow by `limit` bytes."""
    most = data_bytes() + limit
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    train(arguments)
    return True


def durations(arguments: argparse.Namespace) -> list[float]:
    """Seconds of each step of a run."""
    ticks = [time.perf_counter()]

    def go_on() -> bool:
        ticks.append(time.perf_counter())
        return len(ticks) <= STEPS_AT_LEAST or ticks[-1] - ticks[0] < SECONDS_AT_LEAST

    train(arguments, go_on)
    return [after - before for before, after in pairwise(ticks)]


def flops(arguments: argparse.Namespace) -> int:
    """Floating-point operations of a step, as torch counts them."""
    from torch.utils.flop_counter import FlopCounterMode

    step, _, _ = prepared(arguments)
    with FlopCounterMode(display=False) as counter:
        step()
    return int(counter.get_total_flops())


def tracked(arguments: argparse.Namespace) -> int:
    """Peak bytes of tensors in two steps, as torch's memory tracker counts them."""
    from torch.distributed._tools.mem_tracker import MemTracker

    with MemTracker() as tracker:
        step, _, _ = prepared(arguments)
        step()
        tracker.reset_mod_stats()  # otherwise it refuses a second step
        step()
    return int(tracker.get_tracker_snapshot("peak")[torch.device("cpu")]["Total"])


ORDERS: dict[str, Callable[..., Any]] = {
    "memory": memory, "ends": ends, "durations": durations, "flops": flops, "tracked": tracked,
}  # fmt: skip


def main() -> None:
    import torch._dynamo  # every optimizer does, at its first step
    import transformers  # noqa: F401

    torch.set_num_threads(1)
    parser = argparse.ArgumentParser()
    add_options(parser)
    warmed: set[str] = set()
    for line in sys.stdin:
        order = json.loads(line)
        what, arguments = ORDERS[order.pop("what")], parser.parse_args(order.pop("arguments"))
        if arguments.family not in warmed:  # what a family imports is imported once
            family_named(arguments.family).build(BASE)
            warmed.add(arguments.family)
        print(json.dumps(in_fork(partial(what, arguments, **order))), flush=True)


if __name__ == "__main__":
    main()
