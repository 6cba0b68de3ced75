"""Work in a forked child: this process stays as it is, and the kernel reports the memory that the work takes."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple


def in_fork(work: Callable[[], Any]) -> Any:
    """The JSON value that `work` returns in a forked child; the text of the exception when it raises."""
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            answer = work()
        except BaseException as fault:  # noqa: BLE001 - a child must end here
            answer = f"{type(fault).__name__}: {fault}"
        try:
            with os.fdopen(write_end, "w") as out:
                json.dump(answer, out)
        finally:
            os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end) as result:
        content = result.read()
    os.waitpid(pid, 0)
    return json.loads(content) if content else "died"


class AddressSpace(NamedTuple):
    """Bytes of this process's address space."""

    size: int
    peak: int
    """The largest size so far; never below `size`."""


def address_space() -> AddressSpace:
    """Size and peak from one reading: a second reading can allocate memory and so exceed the peak of the first."""
    lines = [line.split() for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("Vm")]
    kilobytes = {name.rstrip(":"): int(count) for name, count, *_ in lines}
    return AddressSpace(1024 * kilobytes["VmSize"], 1024 * kilobytes["VmPeak"])
