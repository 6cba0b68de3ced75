"""The dry run of a cell: the fingerprint of its workload and settings, without training anything.

    python -m pharoah_benchmarks.campaign.dry_cell

Reads cells as JSON lines and writes a `DryCell` as a JSON line for each, every one from a forked process of its own.
The provider runs this beside a campaign, on its own machine, so that no agent's word decides which job a cell was.
"""

from __future__ import annotations

import os
import sys

import torch
import torch._dynamo  # every script pays for this import at its first optimizer; here once

from pharoah.dryrun.exploration import DataDependentBranch, UnknownValues
from pharoah.dryrun.fake_tensors import fake_step
from pharoah.dryrun.step_boundary import Finished
from pharoah_benchmarks.campaign.cell import Cell, DryCell
from pharoah_benchmarks.campaign.forked import Bounds, in_child
from pharoah_benchmarks.campaign.ranks import join
from pharoah_benchmarks.workloads import build
from pharoah_protocol.parent_process import end_with_parent

DRY_RUN_SECONDS = 60.0
"""The longest time that the dry run of one cell may take: as long as a cell itself has in `examples/campaign.toml`."""

MOST_STEPS = 4
"""A dry run ends within the second step, or with the third one where the second is another than the first."""
NICENESS = 10
"""Cells that train and calls of tenants come first: the result of a dry run is not needed before learning."""


def dry_cell(cell: Cell) -> DryCell:
    """Dry-run a cell in a forked process. Never raises: a cell that cannot be dry-run has a reason instead."""
    answer = in_child(lambda: _fingerprint(cell).to_json(), Bounds(seconds=DRY_RUN_SECONDS))
    if answer.late or answer.beyond:
        return DryCell(reason=answer.beyond or f"longer than {DRY_RUN_SECONDS:g} s")
    try:
        return DryCell.from_json(answer.text)
    except (ValueError, KeyError, TypeError, RecursionError) as error:  # a script can write anything
        return DryCell(
            reason=f"its process ended with status {answer.status} without a result that can be read: {error}"
        )


def _fingerprint(cell: Cell) -> DryCell:
    """Steps on fake tensors until their dry run has seen enough, as a tenant's dry run takes them."""
    try:
        with fake_step(lambda *_: None, UnknownValues(lambda _: None)):
            if cell.ranks > 1:
                join(0, cell.ranks, cell.ordered_device)
            step, _ = build(cell.workload, cell.settings)
            for _ in range(MOST_STEPS):
                step()
    except Finished as finished:
        return DryCell(fingerprint=finished.fingerprint.to_json())
    except (Exception, DataDependentBranch) as error:  # noqa: BLE001 - whatever a workload raises is the reason
        return DryCell(reason=f"{type(error).__name__}: {error}")
    return DryCell(reason=f"its dry run does not end with {MOST_STEPS} steps")


def main() -> None:
    """Answer every cell on standard input, until the input ends."""
    end_with_parent()
    os.nice(NICENESS)
    torch.set_num_threads(1)
    for line in sys.stdin:
        sys.stdout.write(dry_cell(Cell.from_json(line)).to_json() + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
