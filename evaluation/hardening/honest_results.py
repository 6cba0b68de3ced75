"""Honest results, through the readers that refuse hostile ones: every workload, every fault and every micro-benchmark.

All of them run here, in the child processes of an agent, with the agent's own sampling beside degraded cells. What a
machine without GPUs cannot run is an outcome, and that is a result, too.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections import Counter
from dataclasses import replace

from evaluation.figures import Figures
from pharoah_benchmarks.campaign.cell import Cell, CellResult, Degradation
from pharoah_benchmarks.faults import FAULTS
from pharoah_benchmarks.micro import MICRO_BENCHMARKS, SLOW_SECONDS, Answer, MeasureOrder, MicroBenchmark, Need, Peer
from pharoah_benchmarks.workload_files import workload_files
from pharoah_learning.evidence import BenchmarkResult
from pharoah_protocol.node_profile import NodeProfile
from pharoah_protocol.v1 import ProbeResult
from pharoah_protocol.vocabulary import DeviceKind, Outcome
from pharoah_provider.agent.cell_telemetry import CellTelemetry
from pharoah_provider.agent.child_processes import Child, ChildDied
from pharoah_provider.agent.fork_servers import cell_answer, fork_servers
from pharoah_provider.agent.telemetry import Telemetry
from pharoah_provider.agent_connection import Connection, OrderKind
from pharoah_provider.cell_results import from_parts, is_of
from pharoah_provider.services import readers
from pharoah_provider.services.agent_answers import AgentAnswers
from pharoah_serving.clock import Clock
from pharoah_serving.errors import ProviderError
from pharoah_serving.metrics import Metrics
from pharoah_serving.reading_processes import ReadingProcesses, Unreadable
from tests.harness.loopback import node
from tests.harness.site import free_port

LIMIT_SECONDS = 60.0
ONSET_SECONDS, LASTS_SECONDS = 2.5, 6.0
QUICK_CELLS, QUICK_BENCHMARKS = 3, 3


def _cells() -> list[Cell]:
    """One of each workload, and one of each fault that a CPU can have, at its largest example of a dose."""
    plain = [Cell(name, name, {}, limit_seconds=LIMIT_SECONDS) for name in workload_files()]
    degraded = [Cell("control", "mlp", {"batch": 64, "width": 256}, 4, 0, LASTS_SECONDS, LIMIT_SECONDS, Degradation())]
    for fault in FAULTS:
        ranks = {"ranks": 2, "strategy": "ddp"} if fault.least_ranks > 1 else {}
        if fault.lacks(DeviceKind.CPU, max(1, len(ranks))):
            continue
        what = Degradation(
            fault=fault.name, dose=fault.dose.examples[-1], onset_seconds=ONSET_SECONDS, rank=1 if ranks else 0
        )
        settings = {"batch": 64, "width": 256, **ranks}
        degraded.append(Cell(fault.name, "mlp", settings, 4, 0, LASTS_SECONDS, LIMIT_SECONDS, what))
    return plain + degraded


async def _answer(servers: object, cell: Cell) -> str:
    """The answer of an agent to a cell."""
    seen = CellTelemetry(Telemetry())
    watching = asyncio.create_task(seen.watch())
    try:
        return seen.add_to(cell, await cell_answer(servers, cell))  # type: ignore[arg-type]
    finally:
        watching.cancel()
        await asyncio.wait({watching})


async def _probe(benchmark: MicroBenchmark, profile: NodeProfile, folder: str) -> Answer:
    """What a child of an agent measures; with a partner where one is needed."""
    order = MeasureOrder(
        benchmark=benchmark.name, repeats=benchmark.repeats, limit_seconds=benchmark.limit_seconds, remote_folder=folder
    )
    orders = [order]
    if benchmark.need is Need.PARTNER:
        place = f"127.0.0.1:{free_port()}"
        orders = [replace(order, peer=Peer(rank, 2, place)) for rank in range(2)]

    async def measured(one: MeasureOrder) -> Answer:
        async with Child("pharoah_benchmarks.micro", profile) as child:
            try:
                await child.warm()
                return Answer.from_json(await child.ask(one.to_json(), one.longest_seconds + SLOW_SECONDS))
            except (ChildDied, TimeoutError) as error:
                return Answer(error=f"{type(error).__name__}: {error}")

    return (await asyncio.gather(*map(measured, orders)))[0]


async def _is_taken(answers: AgentAnswers, benchmark: MicroBenchmark, answer: Answer, began: float) -> str:
    """Why the provider does not take the answer to an order of this benchmark; empty where it does."""
    connection = Connection(node("n1"), Clock())
    content = {"benchmarks": [benchmark.name], "repeats": benchmark.repeats}
    async with connection.order(OrderKind.PROBE, content, "o") as results:
        message = ProbeResult(
            order_id="o", benchmark=benchmark.name, seconds=answer.seconds, started_at=began, ended_at=time.time(),
            error=answer.error, correct=answer.correct, digest=answer.digest,
        )  # fmt: skip
        try:
            answers.take_probe(connection, message, time.time())
        except ProviderError as error:
            return str(error)
        return "" if isinstance(results.get_nowait(), BenchmarkResult) else "no result"


async def measure(figures: Figures, quick: bool, seed: int) -> None:  # noqa: ARG001 - nothing is drawn here
    """How many of them are refused."""
    profile, refused, outcomes = (
        NodeProfile(cpus=tuple(os.sched_getaffinity(0)), threads=1),
        list[str](),
        Counter[str](),
    )
    cells = _cells()
    benchmarks = [one for one in MICRO_BENCHMARKS if one.device is DeviceKind.CPU]
    if quick:
        cells, benchmarks = cells[:: max(1, len(cells) // QUICK_CELLS)], benchmarks[:QUICK_BENCHMARKS]
    async with ReadingProcesses(readers.TABLE) as reading:
        async with fork_servers(profile) as servers:
            for cell in cells:
                text = await _answer(servers, cell)
                try:
                    result = from_parts(await reading.read("cell", cell.to_json().encode(), text.encode()))
                except Unreadable as error:
                    refused.append(f"cell {cell.id}: {error}")
                    continue
                if not isinstance(result, CellResult) or not is_of(result, cell):
                    refused.append(f"cell {cell.id}: not of the cell")
                    continue
                outcomes["ok" if result.outcome is Outcome.OK else "other"] += 1
        answers = AgentAnswers(reading, Metrics())
        with tempfile.TemporaryDirectory(prefix="pharoah-honest-") as folder:
            for benchmark in benchmarks:
                began = time.time()
                answer = await _probe(benchmark, profile, folder)
                if reason := await _is_taken(answers, benchmark, answer, began):
                    refused.append(f"micro-benchmark {benchmark.name}: {reason}")
                outcomes["other" if answer.error else "ok"] += 1
    shown = f"{len(cells)} cells, {len(benchmarks)} micro-benchmarks, {outcomes['other']} with an error of their own"
    figures.add("honest_results_refused", len(refused), "0", not refused, shown)
    if refused:
        figures.table("Honest results that were refused.", ("what",), [[one] for one in refused])
