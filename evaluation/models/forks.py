"""Work in a forked child: this process stays as it is, and the kernel reports the memory that the work takes."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any


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


def address_space(name: str) -> int:
    """Bytes of address space this process has now (`VmSize`) or has had at most (`VmPeak`)."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(next(line.split()[1] for line in status.splitlines() if line.startswith(name)))
