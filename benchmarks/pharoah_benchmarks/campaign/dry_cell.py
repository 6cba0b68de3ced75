"""The dry run of a cell: the fingerprint of its workload and settings, without training anything.

    python -m pharoah_benchmarks.campaign.dry_cell

Reads cells as JSON lines and writes a `DryCell` as a JSON line for each, every one from a forked process of its own.
The provider runs this beside a campaign, on its own machine, so that no agent's word decides which job a cell was. The
fingerprint of a cell with an environment also names the code that ran (`pharoah.dryrun.executed_code`): where two
environments run the same code, one of them is enough.
"""

from __future__ import annotations

import hashlib
import os
import sys
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from importlib import metadata
from pathlib import Path

import torch

from pharoah._errors import UnknownReason
from pharoah.dryrun.executed_code import ExecutedCode
from pharoah.dryrun.exploration import DataDependentBranch, Explorer
from pharoah.dryrun.fake_tensors import fake_step
from pharoah.dryrun.reports import Report, ReportKind, ReportLine, reporting
from pharoah.dryrun.result import DryRun
from pharoah.dryrun.step_boundary import Finished
from pharoah.dryrun.ways import together
from pharoah.torch_names import dynamo  # noqa: F401 - imported once, or each script would at its first optimizer
from pharoah_benchmarks.campaign.cell import Cell, DryCell
from pharoah_benchmarks.campaign.forked import Bounds, in_child
from pharoah_benchmarks.campaign.ranks import join
from pharoah_benchmarks.environments.store import use_own
from pharoah_benchmarks.workloads import build
from pharoah_system.had_time import MAX_WALL_RATIO
from pharoah_system.parent_process import end_with_parent

DRY_RUN_SECONDS = 60.0
"""The longest time that the dry run of one cell may take: as long as a cell itself has in `examples/campaign.toml`."""

MAX_STEPS = 4
"""A dry run ends within the second step, or with the third one where the second is another than the first."""
NICENESS = 10
"""Cells that train and calls of tenants come first: the result of a dry run is not needed before learning."""


def dry_cell(cell: Cell, record_code: bool = False) -> DryCell:
    """Dry-run a cell in a forked process. Never raises: a cell that cannot be dry-run has a reason instead.

    `record_code` takes twice as long: the fingerprint then names the code that ran.
    """
    further = _environments_packages() if record_code else {}
    answer = in_child(lambda: _fingerprint(cell, record_code, further).to_json(), Bounds(seconds=DRY_RUN_SECONDS))
    if answer.starved:
        return DryCell(reason="the machine was too busy for its dry run", may_be_tried_again=True)
    if answer.late or answer.beyond:
        return DryCell(reason=answer.beyond or f"longer than {DRY_RUN_SECONDS:g} s")
    try:
        return DryCell.from_json(answer.text)
    except (ValueError, KeyError, TypeError, RecursionError) as error:  # a script can write anything
        return DryCell(
            reason=f"its process ended with status {answer.status} without a result that can be read: {error}"
        )


def _fingerprint(cell: Cell, record_code: bool, further: dict[str, str]) -> DryCell:
    """Steps on fake tensors until their dry run has seen enough, as a tenant's dry run takes them.

    Branches on values are followed both ways, each in a process of its own (`pharoah.dryrun.exploration`).
    """
    results = os.memfd_create("pharoah-dry-cell")  # nothing to delete when these processes are killed
    parent, child = os.getpid(), os.fork()
    if not child:
        end_with_parent(parent)
        report = Report(results)
        with reporting(report):
            _step(cell, report, ExecutedCode(further) if record_code else None)
    _, status = os.waitpid(child, 0)
    os.lseek(results, 0, os.SEEK_SET)
    with os.fdopen(results, "rb") as file:
        lines = [ReportLine.from_json(line) for line in file]
    try:
        found = together(lines)
    except UnknownReason as reason:
        return DryCell(reason=str(reason))
    if found is None:
        reasons = [line.content for line in lines if line.kind is ReportKind.REASON]
        return DryCell(reason=reasons[0] if reasons else f"its process ended with status {status}")
    return DryCell(fingerprint=replace(found.fingerprint, code=_code_of_all_ways(lines)).to_json())


def _step(cell: Cell, report: Report, code: ExecutedCode | None) -> None:
    """Report the result of every way."""

    def note(found: DryRun, final: bool) -> None:
        if final:
            fingerprint = replace(found.fingerprint, code=code.digests() if code else {})
            report.write(ReportKind.FINAL, found._replace(fingerprint=fingerprint).to_json())

    values = Explorer(report.reason, report.branch, time.monotonic() + MAX_WALL_RATIO * DRY_RUN_SECONDS)
    report.decisions = values.decisions
    torch.manual_seed(0)  # a job that leaves out layers at random has one structure in all of its dry runs
    if code:
        code.start()
    try:
        with fake_step(note, values):
            if cell.ranks > 1:
                join(0, cell.ranks, cell.ordered_device)
            step, _ = build(cell.workload, cell.settings)
            for _ in range(MAX_STEPS):
                step()
        report.reason(f"its dry run does not end with {MAX_STEPS} steps")
    except (Finished, DataDependentBranch):
        pass  # reported when it happened


def _code_of_all_ways(lines: Iterable[ReportLine]) -> dict[str, str]:
    """The digests of the code that ran, over all ways."""
    digests: dict[str, set[str]] = defaultdict(set)
    for line in lines:
        if line.kind is ReportKind.FINAL:
            for package, digest in DryRun.from_json(line.content).fingerprint.code.items():
                digests[package].add(digest)
    return {
        package: found.pop() if len(found) == 1 else _digest_of(found) for package, found in sorted(digests.items())
    }


def _digest_of(digests: set[str]) -> str:
    return hashlib.blake2b("\n".join(sorted(digests)).encode(), digest_size=16).hexdigest()


@cache
def _environments_packages() -> dict[str, str]:
    """Modules that are installed in the environment of this process itself, with the names of their packages."""
    own = Path(sys.prefix)
    return {
        module: packages[0]
        for module, packages in metadata.packages_distributions().items()
        if Path(str(metadata.distribution(packages[0]).locate_file(""))).is_relative_to(own)
    }


def main() -> None:
    """Answer every cell on standard input, until the input ends."""
    end_with_parent()
    os.nice(NICENESS)
    torch.set_num_threads(1)
    for line in sys.stdin:
        use_own()
        cell = Cell.from_json(line)
        sys.stdout.write(dry_cell(cell, record_code=bool(cell.environment)).to_json() + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
