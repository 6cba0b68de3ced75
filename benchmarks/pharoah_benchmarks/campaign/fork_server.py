"""The fork server: a process that has imported torch and run nothing, and forks a fresh process for every cell.

    python -m pharoah_benchmarks.campaign.fork_server MEMORY-LIMIT-BYTES

Reads cells as JSON lines, writes outcomes as JSON lines. A fork costs 20 ms where an import costs a second.
"""

from __future__ import annotations

import os
import sys
from dataclasses import replace

import torch
import torch._dynamo  # every script pays for this import at its first optimizer; here once

from pharoah.capture.inventory import installed_versions
from pharoah_benchmarks.campaign.cell import Cell, CellResult
from pharoah_benchmarks.campaign.forked import in_child
from pharoah_protocol.node_profile import limit_memory
from pharoah_protocol.parent_process import end_with_parent
from pharoah_protocol.process_memory import data_bytes
from pharoah_protocol.vocabulary import Fault, Outcome

_PLAIN_DATA_BYTES = data_bytes()
"""Data segment of a process with what any training script has imported; a limit is relative to that."""

LEAK_ROOM_BYTES = 400_000_000

# Imported after the measurement above and before any fork.
from pharoah_benchmarks.campaign.cell_runner import run_trial  # noqa: E402
from pharoah_benchmarks.campaign.dry_cell import dry_cell  # noqa: E402


class ForkServer:
    """Runs cells one after another, each in a process of its own."""

    def __init__(self, memory_limit_bytes: int) -> None:
        self._limit = memory_limit_bytes
        self._fingerprints: dict[str, str] = {}
        self._versions = installed_versions()

    def run(self, cell: Cell) -> CellResult:
        """The result of one cell, with the fingerprint of what it trains."""
        if cell.content not in self._fingerprints:
            self._fingerprints[cell.content] = dry_cell(cell).fingerprint
        answer, status = in_child(lambda: self._trial(cell), cell.limit_seconds)
        if answer:
            result = CellResult.from_json(answer)
        elif status is None:
            late = f"longer than {cell.limit_seconds:g} s"
            result = CellResult(cell=cell.id, outcome=Outcome.TIMEOUT, detail=late)
        else:
            result = CellResult(cell=cell.id, outcome=Outcome.CRASH, detail=f"exit status {status}")
        context = {**result.context, "versions": self._versions}  # also of a cell that fails before it has a model
        return replace(result, fingerprint=self._fingerprints[cell.content], context=context)

    def _trial(self, cell: Cell) -> str:
        if self._limit:
            limit_memory(self._limit + data_bytes() - _PLAIN_DATA_BYTES)
        elif cell.degradation is not None and cell.degradation.kind is Fault.LEAK:
            limit_memory(data_bytes() + LEAK_ROOM_BYTES)  # or it would leak for a long time before anything happens
        result = run_trial(cell)
        return replace(result, context={**result.context, "memory_limit": self._limit}).to_json()


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
