"""Every fault of the catalogue that this machine can run, at two doses, in real cells.

The cells run in the fork server of an agent, under a node profile, and the agent's own sampling runs beside them. What
comes of them goes through the storage of the provider, as in a campaign.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil

from evaluation.figures import Figures
from pharoah_benchmarks.campaign.cell import Cell, CellResult, Degradation
from pharoah_benchmarks.faults import FAULTS, Fault, FaultError
from pharoah_learning.evidence import DegradedRun
from pharoah_learning.fault_responses import FaultResponse, fault_responses
from pharoah_protocol.node_profile import NodeProfile
from pharoah_protocol.vocabulary import NO_FAULT, DeviceKind, Outcome
from pharoah_provider.agent.cell_telemetry import CellTelemetry
from pharoah_provider.agent.child_processes import Child
from pharoah_provider.agent.telemetry import Telemetry
from pharoah_provider.domain import Node
from pharoah_provider.storage.duckdb import DuckStorage

ONSET_SECONDS, QUICK_ONSET_SECONDS = 2.5, 2.0
AFTER_SECONDS, QUICK_AFTER_SECONDS = 3.5, 2.5
CONTROLS, QUICK_CONTROLS = 4, 2
LIMIT_SECONDS = 24.0
"""A rank waits half of it for another one; then its cell counts as hanging."""
VISIBLE_RATIO = 1.1
"""A slowdown is visible when it is so many times that of any control run, which is at least 1."""
VISIBLE_BYTES = 10e6
"""Growth is visible when it is so much more than that of any control run."""
NODE = Node("faults", bytes(32), "boot", ("device=cpu",), ("device=cpu",), (0,))


@dataclass(frozen=True)
class Kind:
    """Cells that are compared with each other."""

    name: str
    settings: dict[str, Any]
    cpus: tuple[int, ...]
    faults: tuple[Fault, ...]


@dataclass(frozen=True)
class Ran:
    """One cell that ran."""

    cell: Cell
    result: CellResult

    @property
    def is_missing(self) -> bool:
        """Whether this machine lacks what the fault needs."""
        return self.result.detail.startswith(f"{FaultError.__name__}: ")


@dataclass(frozen=True)
class Found:
    """What came of the cells of one kind."""

    kind: Kind
    responses: list[FaultResponse]
    control: list[FaultResponse]
    """One for each control run."""

    def with_effect(self) -> list[FaultResponse]:
        """The faults and doses that did what no control run shows."""
        outcomes = {outcome for one in self.control for outcome in one.outcomes}
        slowdown = VISIBLE_RATIO * max(1.0, *(one.slowdown_ratio or 1.0 for one in self.control))
        growth = VISIBLE_BYTES + max(0.0, *(one.growth_bytes or 0.0 for one in self.control))
        return [
            one
            for one in self.responses
            if set(one.outcomes) - outcomes
            or (one.slowdown_ratio or 0.0) > slowdown
            or (one.growth_bytes or 0.0) > growth
        ]


def measure(figures: Figures, arguments: argparse.Namespace) -> None:
    """Run all cells, and count faults with an effect and what is left of them."""
    with tempfile.TemporaryDirectory() as name, _temporary_files_in(Path(name)):
        before = _present(Path(name))
        ran, responses = asyncio.run(_run_all(arguments))
        left = _present(Path(name)) - before
    possible = sorted({one.cell.id for one in ran if not one.is_missing and one.cell.id != NO_FAULT})
    visible = sorted({one.fault for found in responses for one in found.with_effect()})
    for name in FAULTS.entries:
        if name not in possible:
            why = next((one.result.detail for one in ran if one.cell.id == name), "")
            figures.skip(f"fault_{name}", why or FAULTS[name].lacks(DeviceKind.CPU, 2))
    figures.add("faults_in_catalogue", len(FAULTS.entries))
    figures.add("faults_that_ran", len(possible))
    unseen = ", ".join(sorted(set(possible) - set(visible)))
    figures.add("faults_with_effect", len(visible), "= faults that ran", visible == possible, unseen)
    figures.add("faults_left_behind", len(left), "0", not left, ", ".join(sorted(left))[:200])
    figures.table(
        "Each fault and dose, and control runs (`none`) in the same place: what it did to a cell.",
        ["cell", "fault", "dose", "outcome", "error class", "step ratio", "growth", "signals that moved"],
        [_row(found.kind, one, ran) for found in responses for one in found.responses],
    )


async def _run_all(arguments: argparse.Namespace) -> tuple[list[Ran], list[Found]]:
    rng = random.Random(arguments.seed)
    ran, responses = [], []
    for kind in _kinds():
        done = await _run(kind, _cells(kind, rng, quick=arguments.quick))
        ran += done
        runs = await _stored([one for one in done if not one.is_missing])
        control = [fault_responses([run])[0] for run in runs if run.fault == NO_FAULT]
        responses.append(Found(kind, fault_responses(runs), control))
    return ran, responses


def _kinds() -> list[Kind]:
    """Cells on one core, where others compete for it; on all cores, for the memory that they share; and of two ranks.

    The cells are small, so that a step takes milliseconds. That on all cores streams its parameters from memory.
    """
    cpus = tuple(sorted(os.sched_getaffinity(0)))
    here = [fault for fault in FAULTS if not fault.lacks(DeviceKind.CPU, 2)]
    ranks = tuple(fault for fault in here if fault.least_ranks > 1)
    memory = (FAULTS["memory_bandwidth"],)
    alone = tuple(fault for fault in here if fault not in (*ranks, *memory))
    small = {"batch": 64, "width": 256}
    return [
        Kind("one core", small, cpus[:1], alone),
        Kind("all cores", {"batch": 16, "width": 1024}, cpus, memory),
        Kind("two ranks", {**small, "ranks": 2, "strategy": "ddp"}, cpus, ranks),
    ]


def _cells(kind: Kind, rng: random.Random, *, quick: bool) -> list[Cell]:
    """Control runs and both doses of each fault, in a drawn order, so that a busy minute harms any of them."""
    onset, after = (QUICK_ONSET_SECONDS, QUICK_AFTER_SECONDS) if quick else (ONSET_SECONDS, AFTER_SECONDS)
    what = [Degradation(onset_seconds=onset)] * (QUICK_CONTROLS if quick else CONTROLS)
    what += [
        Degradation(fault=fault.name, dose=dose, onset_seconds=onset, rank=int(kind.settings.get("ranks", 1)) - 1)
        for fault in kind.faults
        for dose in fault.dose.examples
    ]
    cells = [
        Cell(one.fault, "mlp", kind.settings, 4, rng.randrange(1000), onset + after, LIMIT_SECONDS, one) for one in what
    ]
    rng.shuffle(cells)
    return cells


async def _run(kind: Kind, cells: list[Cell]) -> list[Ran]:
    """Have the cells done as an agent does it."""
    profile = NodeProfile(cpus=kind.cpus, threads=1)
    done = []
    async with Child("pharoah_benchmarks.campaign.fork_server", profile, "0", limit_memory=False) as fork_server:
        await fork_server.ask(replace(cells[0], degradation=None, seconds=0.0).to_json(), 120.0)  # its dry run
        for cell in cells:
            seen = CellTelemetry(Telemetry())
            watching = asyncio.create_task(seen.watch())
            answer = await fork_server.ask(cell.to_json(), 4 * LIMIT_SECONDS)
            watching.cancel()
            await asyncio.wait({watching})
            done.append(Ran(cell, CellResult.from_json(seen.add_to(cell, answer))))
    return done


async def _stored(done: list[Ran]) -> list[DegradedRun]:
    """The runs as learning reads them."""
    with tempfile.TemporaryDirectory() as folder:
        storage = DuckStorage(Path(folder) / "faults.duckdb")
        try:
            for one in done:
                await storage.evidence.append_cell("faults", NODE, one.cell, one.result)
            return await storage.evidence.list_degraded_runs()
        finally:
            storage.close()


def _row(kind: Kind, response: FaultResponse, ran: list[Ran]) -> list[str]:
    details = {
        one.result.detail.partition(":")[0]
        for one in ran
        if (one.cell.id, one.cell.degradation and one.cell.degradation.dose) == (response.fault, response.dose)
        and one.result.outcome is not Outcome.OK
    }
    ratio, growth = response.slowdown_ratio, response.growth_bytes
    return [
        kind.name,
        response.fault,
        "" if response.fault == NO_FAULT else f"{response.dose:g}",
        ", ".join(f"{name} {count}" for name, count in response.outcomes.items()),
        ", ".join(sorted(details))[:60],
        "" if ratio is None else f"{ratio:.2f}",
        "" if growth is None else f"{growth / 1e6:.0f} MB",
        ", ".join(response.moved),
    ]


@contextmanager
def _temporary_files_in(folder: Path) -> Iterator[None]:
    """All temporary files of this process and of its children are below a folder."""
    before = os.environ.get("TMPDIR")
    os.environ["TMPDIR"], tempfile.tempdir = str(folder), None
    try:
        yield
    finally:
        del os.environ["TMPDIR"]
        if before is not None:
            os.environ["TMPDIR"] = before
        tempfile.tempdir = None


def _present(folder: Path) -> set[str]:
    """What cells can leave: files, processes, file systems, network devices, control groups."""
    found = {f"file {path}" for path in folder.rglob("*")}
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.pid != os.getpid() and process.environ().get("TMPDIR", "").startswith(str(folder)):
                found.add(f"process {process.pid}")
    found |= {f"mount {line.split()[4]}" for line in Path("/proc/self/mountinfo").read_text().splitlines()}
    found |= {f"network device {path.name}" for path in Path("/sys/class/net").iterdir()}
    return found | {f"control group {path}" for path in Path("/sys/fs/cgroup").glob(f"**/pharoah-cell-{os.getpid()}*")}
