"""The child that runs one micro-benchmark for the sidecar. It ends with the sidecar, however that ends."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from contextlib import suppress

from pharoah_protocol.guest_probes import MAX_REPEATS, GuestOrder, GuestResult
from pharoah_protocol.vocabulary import ProbeStatus
from pharoah_system.async_limits import within
from pharoah_system.bounded_reading import MESSAGE_LIMITS, parse_json
from pharoah_system.had_time import LimitClock
from pharoah_system.own_python import NEUTRAL_FOLDER, own_environment, own_module
from pharoah_system.process_family import end_family
from pharoah_system.text import sanitize_text
from pharoah_system.with_parent import WITH_PARENT

log = logging.getLogger("pharoah.sidecar")

MODULE = "pharoah_benchmarks.guest_probe"
"""By name: the tenant's package does not import benchmarks. The child knows which of them may run beside a job."""
END_SECONDS = 5.0
"""How long a killed child may take to end."""


async def done(order: GuestOrder, seconds: float) -> GuestResult:
    """Do an order in a child of this process, which is killed when it has had so many seconds, or when the caller is
    cancelled.

    Raises OSError when no process can be started.
    """
    child = await asyncio.create_subprocess_exec(
        *own_module(WITH_PARENT, str(os.getpid()), MODULE),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env=own_environment(os.environ),
        cwd=NEUTRAL_FOLDER,
        process_group=0,  # what the terminal sends to the job is not for it; the sidecar ends it
    )
    try:
        output, _ = await within(LimitClock(seconds, child.pid), child.communicate(_line(order)))
        return _result(order, output)
    except TimeoutError:
        log.warning("a micro-benchmark that the provider has ordered was stopped after %.0f s", seconds)
        return GuestResult(order=order, status=ProbeStatus.FAILED)
    finally:
        await _end(child)


def _line(order: GuestOrder) -> bytes:
    """The order as `pharoah_benchmarks.micro.MeasureOrder` reads it."""
    fields = {
        "benchmark": order.benchmark,
        "repeats": order.repeats,
        "limit_seconds": order.limit_seconds,
        "duty": order.duty,
    }
    return json.dumps(fields).encode() + b"\n"


def _result(order: GuestOrder, output: bytes) -> GuestResult:
    """What the child has printed. One that died, or printed anything else, has failed."""
    try:
        answer = parse_json(output, "answer", MESSAGE_LIMITS)
        seconds = tuple(float(took) for took in answer["seconds"])[:MAX_REPEATS]
        error, wrong = str(answer["error"]), answer["correct"] is False
    except (ValueError, TypeError, KeyError):
        seconds, error, wrong = (), "the child has ended without an answer", False
    if error:
        log.warning("a micro-benchmark that the provider has ordered has failed: %s", sanitize_text(error, 200))
    if wrong:
        return GuestResult(order=order, status=ProbeStatus.WRONG)
    status = ProbeStatus.MEASURED if seconds and not error else ProbeStatus.FAILED
    return GuestResult(order=order, status=status, seconds=seconds if status is ProbeStatus.MEASURED else ())


async def _end(child: asyncio.subprocess.Process) -> None:
    """Kill a child that still runs, with all that it has started, and wait for it."""
    if child.returncode is None:  # else the number may be that of another process by now
        await asyncio.to_thread(end_family, lambda: {child.pid})
    with suppress(TimeoutError):
        async with asyncio.timeout(END_SECONDS):
            await child.wait()
