"""The fork server: a process that has imported torch and run nothing, and forks a fresh process for every cell.

    python -m pharoah_benchmarks.campaign.fork_server MEMORY-LIMIT-BYTES

Reads cells as JSON lines, writes outcomes as JSON lines. A fork costs 20 ms where an import costs a second.
"""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter
from dataclasses import replace

import torch

from pharoah.capture.inventory import find_installed_versions
from pharoah.end_causes import memory_kills
from pharoah.torch_names import dynamo  # noqa: F401 - imported once, or each script would at its first optimizer
from pharoah_benchmarks.campaign.cell import Cell, CellResult, NotBuilt
from pharoah_benchmarks.campaign.forked import Bounds, ForkedAnswer, in_child
from pharoah_benchmarks.campaign.record import Record
from pharoah_benchmarks.environments.store import use_own
from pharoah_benchmarks.faults import FAULTS
from pharoah_protocol.node_profile import limit_memory
from pharoah_protocol.vocabulary import NO_FAULT, Outcome
from pharoah_system.had_time import MAX_WALL_RATIO
from pharoah_system.parent_process import end_with_parent
from pharoah_system.process_memory import data_bytes

_PLAIN_DATA_BYTES = data_bytes()
"""Data segment of a process with what any training script has imported; a limit is relative to that."""

BOUNDS = Bounds(seconds=0.0)
"""Bounds of a cell; its own limit takes the place of the seconds."""
_STARVED = f"the machine was too busy: the cell did not get its time within {MAX_WALL_RATIO:g} times as much"
MAX_DRY_RUNS = 3
"""How often it dry-runs a cell that gives no fingerprint: a dry run may only have been late, or killed for memory."""

# Imported after the measurement above and before any fork.
from pharoah_benchmarks.campaign.cell_runner import read_result, run_trial  # noqa: E402
from pharoah_benchmarks.campaign.dry_cell import dry_cell  # noqa: E402


class ForkServer:
    """Runs cells one after another, each in a process of its own."""

    def __init__(self, memory_limit_bytes: int, bounds: Bounds = BOUNDS) -> None:
        """The seconds of `bounds` are those of each cell."""
        self._limit, self._bounds = memory_limit_bytes, bounds
        self._fingerprints: dict[str, str] = {}
        """`Cell.content` to its fingerprint."""
        self._without: Counter[str] = Counter()
        """`Cell.content` to how many of its dry runs gave none."""
        self._versions = find_installed_versions()

    def run(self, cell: Cell) -> CellResult | NotBuilt:
        """The result of one cell, with the fingerprint of what it trains. None where this machine had no time."""
        fingerprint = self._fingerprint(cell)
        kills = memory_kills()
        with Record() as record:
            answer = in_child(lambda: self._trial(cell, record), replace(self._bounds, seconds=cell.limit_seconds))
            if answer.starved:
                return NotBuilt(cell=cell.id, not_built=_STARVED, may_be_tried_again=True)
            result = record.add_to(_result(cell, answer))
        if _was_killed(result) and any(memory_kills().since(kills)):
            result = replace(result, outcome=Outcome.MEMORY, detail=f"{result.detail}: the kernel had no memory left")
        context = {**result.context, "versions": self._versions}  # also of a cell that fails before it has a model
        return replace(result, fingerprint=fingerprint, context=context)

    def _fingerprint(self, cell: Cell) -> str:
        """The fingerprint of a cell; empty where its dry run gave none now, or has given none often enough."""
        content = cell.content
        if content not in self._fingerprints and self._without[content] < MAX_DRY_RUNS:
            dry = dry_cell(cell)
            if dry.fingerprint:
                self._fingerprints[content] = dry.fingerprint
            elif not dry.may_be_tried_again:
                self._without[content] += 1
        return self._fingerprints.get(content, "")

    def _trial(self, cell: Cell, record: Record) -> str:
        if self._limit:
            limit_memory(self._limit + data_bytes() - _PLAIN_DATA_BYTES)
        elif room := _room_bytes(cell):
            limit_memory(data_bytes() + room)  # or it would grow for a long time before anything happens
        result = run_trial(cell, record)
        return replace(result, context={**result.context, "memory_limit": self._limit}).to_json()


def _room_bytes(cell: Cell) -> int:
    """How far a cell may grow when its node has no memory limit; 0 is without a limit."""
    fault = cell.degradation.fault if cell.degradation else NO_FAULT
    return FAULTS[fault].room_bytes if fault in FAULTS else 0


def _result(cell: Cell, answer: ForkedAnswer) -> CellResult:
    """What came of a cell, whatever its process did."""
    nothing = CellResult(cell=cell.id, outcome=Outcome.CRASH, device=cell.ordered_device)
    if answer.late:
        return replace(nothing, outcome=Outcome.TIMEOUT, detail=f"longer than {cell.limit_seconds:g} s")
    if answer.beyond:
        return replace(nothing, detail=answer.beyond)
    if not answer.text:
        return replace(nothing, detail=f"exit status {answer.status}")
    result = read_result(cell, answer.text)
    if answer.outlived:
        left = f"{answer.outlived} of its processes lived on and were ended"
        return replace(result, detail="; ".join(filter(None, (result.detail, left))))
    return result


def _was_killed(result: CellResult) -> bool:
    """Whether a process of a cell has ended by SIGKILL, which nobody but the kernel's out-of-memory killer sends."""
    return result.outcome is Outcome.CRASH and result.detail.endswith(f"exit status {-signal.SIGKILL}")


def main() -> None:
    """Answer every cell on standard input with its outcome, until the input ends."""
    end_with_parent()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    fork_server = ForkServer(int(sys.argv[1]))
    for line in sys.stdin:
        use_own()
        answer = (
            fork_server.run(Cell.from_json(line)).to_json() if line.strip() else ""
        )  # an empty line: has it started?
        sys.stdout.write(answer + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
