"""How a fault is put into force on one rank, and taken away."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict

from pharoah_benchmarks.faults._fault import NOTHING, Effect, Fault, Place
from pharoah_protocol.own_python import NEUTRAL_FOLDER, own_environment, own_module


@contextmanager
def injected(fault: Fault, place: Place) -> Iterator[Effect]:
    """A fault that is in force within the block. Raises FaultError when it cannot begin."""
    effect = fault.inside(place) if fault.inside else NOTHING
    beside = _started(fault, place) if fault.beside else None
    try:
        yield effect
    finally:
        if beside is not None:
            beside.kill()
            beside.wait()
        effect.end()


def beside_command(fault: Fault, place: Place) -> list[str]:
    """The command of the process beside a rank, for a child of this process."""
    order = {
        "fault": fault.name,
        "parent": os.getpid(),
        "schedule": asdict(place.schedule),
        "pid": place.pid,
        "folder": str(place.folder),
        "limit_seconds": place.limit_seconds,
    }
    return own_module("pharoah_benchmarks.faults._beside", json.dumps(order))


def _started(fault: Fault, place: Place) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        beside_command(fault, place),
        stdin=subprocess.DEVNULL,
        env=own_environment(os.environ),
        cwd=NEUTRAL_FOLDER,
    )
