"""How a fault is put into force on one rank, and taken away."""

from __future__ import annotations

import json
import os
import select
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from pharoah_benchmarks.faults._fault import NOTHING, Effect, Fault, FaultError, Place
from pharoah_system.own_python import NEUTRAL_FOLDER, own_environment, own_module

READY = b"\n"
"""What the process beside a rank writes when it has imported all that it needs, and waits for its place."""
START_SECONDS = 30.0
"""The longest time until then: it imports modules of ours without torch, in a quarter of a second on an idle core."""

BesideProcess = subprocess.Popen[bytes]
"""The process beside a rank."""


@contextmanager
def ready(fault: Fault) -> Iterator[BesideProcess | None]:
    """The process that a fault needs beside its rank, which waits for its place; None where it needs none. It is killed
    after the block. Raises FaultError when it does not start."""
    if fault.beside is None:
        yield None
        return
    command = _command({"fault": fault.name, "parent": os.getpid()})
    environment = own_environment(os.environ)
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, env=environment, cwd=NEUTRAL_FOLDER
    ) as beside:
        try:
            _wait_until_ready(beside, fault)
            yield beside
        finally:
            beside.kill()


@contextmanager
def inject(fault: Fault, place: Place, beside: BesideProcess | None) -> Iterator[Effect]:
    """A fault that is in force within the block. `beside` comes from `ready`.

    Raises FaultError when it cannot begin, and after a block in which its process failed: it was not in force then."""
    effect = fault.inside(place) if fault.inside else NOTHING
    try:
        if beside is not None:
            _send_place(beside, place)
        yield effect
        if beside is not None and (status := beside.poll()):
            raise FaultError(f"the process of {fault.name} has ended with status {status}")
    finally:
        effect.end()


def beside_command(fault: Fault, place: Place) -> list[str]:
    """The command of the process beside a rank, for a child of this process that does not wait for its place."""
    return _command({"fault": fault.name, "parent": os.getpid(), "place": place_to_data(place)})


def place_to_data(place: Place) -> dict[str, Any]:
    """What the process beside a rank needs to know of a place, for JSON."""
    return {
        "schedule": asdict(place.schedule),
        "pid": place.pid,
        "folder": str(place.folder),
        "limit_seconds": place.limit_seconds,
    }


def _command(order: dict[str, Any]) -> list[str]:
    return own_module("pharoah_benchmarks.faults._beside", json.dumps(order))


def _wait_until_ready(beside: BesideProcess, fault: Fault) -> None:
    assert beside.stdout is not None
    if not select.select([beside.stdout], [], [], START_SECONDS)[0]:
        raise FaultError(f"the process of {fault.name} has not started within {START_SECONDS:g} s")
    if beside.stdout.read(len(READY)) != READY:
        raise FaultError(f"the process of {fault.name} has ended with status {beside.wait()} before it was ready")


def _send_place(beside: BesideProcess, place: Place) -> None:
    assert beside.stdin is not None
    try:
        beside.stdin.write(json.dumps(place_to_data(place)).encode() + b"\n")
    except BrokenPipeError:
        raise FaultError(f"its process has ended with status {beside.wait()} before the fault began") from None
