"""The fork server: a process that has imported torch and run nothing, and forks a fresh process for every cell.

    python -m pharoah_benchmarks.campaign.fork_server MEMORY-LIMIT-BYTES

Reads cells as JSON lines, writes outcomes as JSON lines. A fork costs 20 ms where an import costs a second.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace

import torch
import torch._dynamo  # every script pays for this import at its first optimizer; here once

from pharoah_benchmarks.campaign.cell import Cell, CellResult
from pharoah_protocol.node_profile import limit_memory
from pharoah_protocol.parent_process import end_with_parent
from pharoah_protocol.process_memory import data_bytes
from pharoah_protocol.vocabulary import Fault, Outcome

_PLAIN_DATA_BYTES = data_bytes()
"""Data segment of a process with what any training script has imported; a limit is relative to that."""

LEAK_ROOM_BYTES = 400_000_000

from pharoah.dryrun.fake_tensors import fake_step  # noqa: E402 - imported after the measurement above, before any fork
from pharoah.dryrun.placeholder_values import DataDependentBranch  # noqa: E402
from pharoah.dryrun.step_boundary import Finished  # noqa: E402
from pharoah_benchmarks.campaign.cell_runner import run_trial  # noqa: E402
from pharoah_benchmarks.workloads import build  # noqa: E402


class ForkServer:
    """Runs cells one after another, each in a process of its own."""

    def __init__(self, memory_limit_bytes: int) -> None:
        self._limit = memory_limit_bytes
        self._fingerprints: dict[str, str] = {}

    def run(self, cell: Cell) -> CellResult:
        """The result of one cell, with the fingerprint of what it trains."""
        key = json.dumps([cell.workload, cell.settings], sort_keys=True)
        if key not in self._fingerprints:
            self._fingerprints[key] = _in_child(lambda: _fingerprint(cell), 60.0)[0]
        answer, status = _in_child(lambda: self._trial(cell), cell.limit_seconds)
        if answer:
            result = CellResult.from_json(answer)
        elif status is None:
            late = f"longer than {cell.limit_seconds:g} s"
            result = CellResult(cell=cell.id, outcome=Outcome.TIMEOUT, detail=late)
        else:
            result = CellResult(cell=cell.id, outcome=Outcome.CRASH, detail=f"exit status {status}")
        return replace(result, fingerprint=self._fingerprints[key])

    def _trial(self, cell: Cell) -> str:
        if self._limit:
            limit_memory(self._limit + data_bytes() - _PLAIN_DATA_BYTES)
        elif cell.degradation is not None and cell.degradation.kind is Fault.LEAK:
            limit_memory(data_bytes() + LEAK_ROOM_BYTES)  # or it would leak for a long time before anything happens
        result = run_trial(cell)
        return replace(result, context={**result.context, "memory_limit": self._limit}).to_json()


def _fingerprint(cell: Cell) -> str:
    """One step on fake tensors; empty where fakes cannot go."""
    try:
        with fake_step(lambda *_: None, lambda *_: None):
            step, _ = build(cell.workload, cell.settings)
            step()
            step()
    except Finished as finished:
        return finished.fingerprint.to_json()
    except (Exception, DataDependentBranch):  # noqa: BLE001 - a cell without a fingerprint is stored without one
        return ""
    return ""


def _in_child(work: Callable[[], str], limit_seconds: float) -> tuple[str, int | None]:
    """What `work` returned in a forked child, and the child's exit status (None: killed because it took too long)."""
    read_end, write_end = os.pipe()
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        try:
            end_with_parent(parent)
            os.setsid()
            os.close(read_end)
            devnull = os.open(os.devnull, os.O_RDWR)
            for descriptor in (0, 1):
                os.dup2(devnull, descriptor)
            content = work().encode()
            while content:
                content = content[os.write(write_end, content) :]
        except BaseException as fault:  # noqa: BLE001 - a child must end here
            print(f"cell: {type(fault).__name__}: {fault}", file=sys.stderr)  # noqa: T201
            os._exit(1)
        os._exit(0)
    os.close(write_end)
    content, deadline, late = b"", time.monotonic() + limit_seconds, False
    while True:
        if not select.select([read_end], [], [], max(0.0, deadline - time.monotonic()))[0]:
            late = True
            break
        chunk = os.read(read_end, 1 << 16)
        if not chunk:
            break
        content += chunk
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    os.close(read_end)
    _, status = os.waitpid(pid, 0)
    return content.decode(), None if late else os.waitstatus_to_exitcode(status)


def main() -> None:
    """Answer every cell on standard input with its outcome, until the input ends."""
    end_with_parent()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    fork_server = ForkServer(int(sys.argv[1]))
    for line in sys.stdin:
        sys.stdout.write(fork_server.run(Cell.from_json(line)).to_json() + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
