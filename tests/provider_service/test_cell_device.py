"""No row comes from a cell that did not run on the device that its context names."""

from __future__ import annotations

import asyncio
import shutil
from dataclasses import asdict, replace
from pathlib import Path

import duckdb
import pytest

from pharoah_archetypes import Fingerprint
from pharoah_benchmarks.campaign.cell import Cell, CellResult
from pharoah_learning.evidence import Trial
from pharoah_learning.incompatibility import learn_incompatibilities
from pharoah_learning.monitoring_plans import learn_plans
from pharoah_learning.near_duplicates import learn_near_duplicates
from pharoah_protocol.vocabulary import DeviceKind, Outcome
from pharoah_provider.domain import Node
from pharoah_provider.storage.duckdb import DuckStorage
from pharoah_provider.storage.duckdb import database as duck_database
from pharoah_provider.storage.duckdb.database import migrate

FINGERPRINT = Fingerprint(
    "ab" * 16, "12" * 16, "fwd: gemm", {}, {"parameters": 1, "activations": 1}, {"torch": "2.13.0"}
).to_json()
CPU_FACTS = ("cpus=8", "device=a CPU")
GPU_FACTS = (*CPU_FACTS, "gpu=a GPU")


def node(name: str, facts: tuple[str, ...]) -> Node:
    return Node(name, bytes(32), "boot", facts, facts[-1:], (0,))


def result(device: DeviceKind) -> CellResult:
    return CellResult(
        cell="c", outcome=Outcome.OK, step_seconds=[0.1] * 4, device=device, device_model="m", fingerprint=FINGERPRINT
    )


def stored_trials(folder: Path, *cells: tuple[Node, CellResult]) -> list[Trial]:
    """The trials of cells that went through the database."""

    async def inside() -> list[Trial]:
        storage = DuckStorage(folder / "p.duckdb")
        try:
            for where, what in cells:
                await storage.evidence.append_cell("a campaign", where, Cell("c", "mlp", {}), what)
            return await storage.evidence.trials()
        finally:
            storage.close()

    return asyncio.run(inside())


def test_a_cell_on_the_cpu_of_a_gpu_node_gives_no_row(tmp_path: Path) -> None:
    trials = stored_trials(tmp_path, (node("n1", GPU_FACTS), result(DeviceKind.CPU)))
    assert [(trial.device, trial.context_device) for trial in trials] == [(DeviceKind.CPU, DeviceKind.CUDA)]
    rows = learn_incompatibilities(trials)
    assert rows == [] and learn_plans(rows, trials) == [] and learn_near_duplicates(rows, trials) == []


@pytest.mark.parametrize(("facts", "device"), [(GPU_FACTS, DeviceKind.CUDA), (CPU_FACTS, DeviceKind.CPU)])
def test_a_cell_on_the_device_of_its_context_gives_rows(
    tmp_path: Path, facts: tuple[str, ...], device: DeviceKind
) -> None:
    first, second = node("n1", facts), node("n2", facts)
    rows = learn_incompatibilities(stored_trials(tmp_path, (first, result(device)), (second, result(device))))
    assert {row.group_id for row in rows} == {first.facts_id, first.device_id}


def test_a_cell_on_another_device_is_no_control_either(tmp_path: Path) -> None:
    failing = replace(result(DeviceKind.CPU), outcome=Outcome.ERROR, step_seconds=[])
    treated = [(node(name, CPU_FACTS), failing) for name in ("n1", "n2")] * 3
    elsewhere = [(node(name, GPU_FACTS), result(DeviceKind.CPU)) for name in ("n3", "n4")] * 10
    trials = stored_trials(tmp_path, *treated, *elsewhere)
    assert {row.base_runs for row in learn_incompatibilities(trials)} == {0}


def test_a_trial_of_an_older_hand_over_ran_on_the_cpu(tmp_path: Path) -> None:
    (trial,) = stored_trials(tmp_path, (node("n1", CPU_FACTS), result(DeviceKind.CPU)))
    older = {name: value for name, value in asdict(trial).items() if name not in ("device", "context_device")}
    assert Trial.from_dict(older) == trial
    assert '"device"' in result(DeviceKind.CPU).to_json()


def test_cells_of_an_older_database_ran_on_the_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The facts of their contexts are taken from the nodes, and from what other cells of the context have seen."""
    path = tmp_path / "old.duckdb"
    migrations = Path(duck_database.__file__).parent / "migrations"
    older = tmp_path / "older"
    (older / "migrations").mkdir(parents=True)
    for file in sorted(migrations.glob("*.sql"))[:3]:
        shutil.copy(file, older / "migrations")
    with monkeypatch.context() as patch, duckdb.connect(str(path)) as connection:
        patch.setattr(duck_database.resources, "files", lambda _: older)
        migrate(connection)
        connection.execute(
            "INSERT INTO nodes (node, ticket_key, context_id, device_id, server_facts) VALUES (?, ?, ?, ?, ?)",
            ["n1", b"", "listed", "d", list(GPU_FACTS)],
        )
        for context_id, seen in (("listed", "{}"), ("seen", '{"gpu": "a GPU"}'), ("seen", "{}"), ("plain", "{}")):
            connection.execute(
                "INSERT INTO cells (context_id, device_id, workload, settings, degradation, outcome, step_seconds, "
                "fingerprint, context, ran_at) VALUES (?, 'd', 'mlp', '{}', '', 'ok', [0.1], ?, ?, 1.0)",
                [context_id, FINGERPRINT, seen],
            )

    async def trials() -> list[Trial]:
        storage = DuckStorage(path)
        try:
            return await storage.evidence.trials()
        finally:
            storage.close()

    found = {(trial.context_id, trial.device, trial.context_device) for trial in asyncio.run(trials())}
    assert found == {
        ("listed", DeviceKind.CPU, DeviceKind.CUDA),
        ("seen", DeviceKind.CPU, DeviceKind.CUDA),
        ("plain", DeviceKind.CPU, DeviceKind.CPU),
    }
