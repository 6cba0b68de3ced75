"""What every executor keeps, by real processes: `local` always, `ray` where Ray is installed."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import grpc.aio
import psutil
import pytest

from pharoah_benchmarks.campaign.cell import Cell, CellResult
from pharoah_benchmarks.environments.answer import BUILD_SECONDS
from pharoah_learning.evidence import LeftOut, Trial
from pharoah_learning.table import learn_table
from pharoah_learning.usable_trials import NO_CONTEXT
from pharoah_protocol.v1 import PlanCampaignRequest
from pharoah_protocol.vocabulary import Outcome
from pharoah_provider.agent_connection import WrongAnswer
from pharoah_provider.campaigns.executor_settings import ExecutorSettings
from pharoah_provider.campaigns.executors import EXECUTORS, Executor, executor_of
from pharoah_provider.campaigns.executors._cell_processes import check_result, node_without_context
from pharoah_provider.campaigns.executors.local import profiles
from pharoah_provider.campaigns.executors.ray import RayExecutor
from pharoah_provider.campaigns.works import Work, WorkKind
from pharoah_provider.fleet import Fleet
from pharoah_provider.owned_tasks import OwnedTasks
from pharoah_serving.errors import NotReady
from tests.harness.scripted_agents import scripted_site

WITHOUT_RAY = pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed (pharoah[ray])")
EXECUTOR_SECONDS = 180
"""A Ray cluster of three processes starts in 20 s, and torch is imported in each worker."""


@pytest.fixture(scope="module", params=["local", pytest.param("ray", marks=WITHOUT_RAY)])
def settings(request: pytest.FixtureRequest) -> Iterator[ExecutorSettings]:
    """An executor with two processes under a profile."""
    options: dict[str, Any] = {"name": request.param, "slots": 2, "profile": {"threads": 1, "isa": "avx2"}}
    if request.param != "ray":
        yield ExecutorSettings.check(options)
        return
    from tests.harness.ray_clusters import running_cluster

    with running_cluster(nodes=2) as cluster:
        yield ExecutorSettings.check({**options, "address": cluster.address})


@asynccontextmanager
async def opened(settings: ExecutorSettings) -> AsyncIterator[Executor]:
    async with executor_of(settings).open(settings, Fleet()) as executor:
        yield executor


def work_of(cell: Cell, number: int = 0) -> Work:
    return Work(number=number, kind=WorkKind.CELL, context_id="", block=number, cell=cell)


def small(number: int, **changes: Any) -> Cell:
    return Cell(f"mlp#{number}", "mlp", {"width": 8}, **{"limit_seconds": 60.0, **changes})


async def all_nodes(executor: Executor, count: int) -> None:
    while len(executor.nodes()) < count:
        await asyncio.sleep(0.05)


@pytest.mark.timeout(EXECUTOR_SECONDS)
def test_each_process_does_cells_under_the_profile_and_ends_with_the_executor(settings: ExecutorSettings) -> None:
    async def work() -> set[int]:
        async with opened(settings) as executor:
            await all_nodes(executor, 2)
            nodes = executor.nodes()
            assert len({node.node for node in nodes}) == 2 and {node.facts_id for node in nodes} == {""}
            done = [executor.do(node, work_of(small(i), i), f"c.{i}") for i, node in enumerate(nodes)]
            results = await asyncio.gather(*done)
            for number, result in enumerate(results):
                assert isinstance(result, CellResult)
                assert (result.cell, result.outcome) == (f"mlp#{number}", Outcome.OK), result.detail
                assert result.context["threads"] == 1 and result.context["isa"] == "avx2", "read back inside the cell"
                assert result.fingerprint and len(result.step_seconds) == 4
            many = await executor.do(nodes[0], work_of(small(2, steps=10**9, limit_seconds=2.0)), "c.2")
            assert isinstance(many, CellResult) and many.outcome is Outcome.OK, "as many as fit into its time"
            long_step = Cell("mlp#3", "mlp", {"width": 2048, "depth": 1, "batch": 8192}, limit_seconds=0.3)
            late = await executor.do(nodes[0], work_of(long_step), "c.3")
            assert isinstance(late, CellResult) and late.outcome is Outcome.TIMEOUT
            again = await executor.do(nodes[0], work_of(small(3)), "c.3")
            assert isinstance(again, CellResult) and again.outcome is Outcome.OK, "a cell harms no later one"
            return fork_servers()

    started = asyncio.run(work())
    assert len(started) >= 2
    _, alive = psutil.wait_procs([psutil.Process(pid) for pid in started if psutil.pid_exists(pid)], timeout=20)
    assert not alive, "nothing outlives its owner"


def fork_servers() -> set[int]:
    """The fork servers below this process; the nodes of a Ray cluster of this test are below it as well."""
    module, found = "pharoah_benchmarks.campaign.fork_server", set[int]()
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # it has ended, and may still wait for its parent
            if any(module in word for word in child.cmdline()):
                found.add(child.pid)
    return found


@pytest.mark.timeout(EXECUTOR_SECONDS)
def test_a_campaign_on_it_gives_results_without_a_context(settings: ExecutorSettings, tmp_path: Path) -> None:
    options = {**json.loads(settings.to_json())}
    table = "".join(f"{name} = {toml(value)}\n" for name, value in options.items())
    text = f'repeats = 2\n[[workload]]\nname = "mlp"\nvary = {{ width = [8, 16] }}\n[executor]\n{table}'

    async def work(folder: Path) -> None:
        async with scripted_site(folder, []) as site:
            plan = await site.call("Operator", "PlanCampaign", PlanCampaignRequest(campaign=text, seed=1))
            assert (plan.works, plan.blocks, plan.contexts) == (4, 2, 0), "no baselines"
            assert len(await site.campaign(campaign_id=plan.campaign_id)) == 4
            (row,) = await site.listing("campaigns")
            assert (row["state"], row["done"], row["executor"]) == ("done", 4, settings.name)
            cells = await site.listing("cells")
            assert [cell["context"] for cell in cells] == [""] * 4
            assert len({(cell["block"], cell["cell"]) for cell in cells}) == 4
            with pytest.raises(grpc.aio.AioRpcError, match="nothing to learn from"):
                await site.learn()

    at(tmp_path, work)


def toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{name} = {toml(one)}" for name, one in value.items()) + " }"
    return json.dumps(value)


def at(folder: Path, work: Callable[[Path], Awaitable[None]]) -> None:
    async def inside() -> None:
        await work(folder)

    asyncio.run(inside())


def test_options_that_an_executor_does_not_take_are_named(tmp_path: Path) -> None:
    bad = {
        'name = "agents"\nslots = 2': "executor.slots: no option of the executor agents; it takes none",
        'name = "local"\naddress = "auto"': "executor.address: no option of the executor local",
        'name = "slurm"': "executor: 'slurm' is not one of: agents, local, ray",
        'name = "local"\nslots = 0': "executor.slots: 0 is not a whole number from 1",
        'name = "local"\nnodes = 3': "executor.nodes: unknown option",
        'name = "local"\nprofile = { cores = 3 }': "executor.profile: unknown key 'cores'",
        'name = "local"\nprofile = { cpus = [8000] }': "are not all on this machine",
        'name = "ray"\nprofile = { cpus = [0] }': "Ray places its workers",
    }
    degrade = '[degrade]\nworkload = "mlp"\nhealthy = 1\n'

    async def work(folder: Path) -> None:
        async with scripted_site(folder, []) as site:
            for table, message in bad.items():
                text = f'[[workload]]\nname = "mlp"\n[executor]\n{table}\n'
                with pytest.raises(grpc.aio.AioRpcError) as error:
                    await site.call("Operator", "PlanCampaign", PlanCampaignRequest(campaign=text))
                assert message in str(error.value.details())
            text = f'[[workload]]\nname = "mlp"\n{degrade}[executor]\nname = "local"\n'
            with pytest.raises(grpc.aio.AioRpcError, match="degrade: the executor local has no nodes of the fleet"):
                await site.call("Operator", "PlanCampaign", PlanCampaignRequest(campaign=text))
            assert not await site.listing("campaigns")

    at(tmp_path, work)


def test_processors_are_dealt_out_among_the_processes_of_the_pool() -> None:
    cpus = sorted(os.sched_getaffinity(0))
    one_each = profiles(ExecutorSettings(name="local", slots=len(cpus)))
    assert [profile.cpus for profile in one_each] == [(cpu,) for cpu in cpus]
    more = profiles(ExecutorSettings(name="local", slots=len(cpus) + 1))
    assert more[-1].cpus == tuple(cpus), "with more processes than processors, some share them"
    assert len(profiles(ExecutorSettings(name="local"))) == len(cpus)


def test_results_that_cannot_be_those_of_the_cell_are_refused() -> None:
    cell, node = small(1, limit_seconds=5.0), node_without_context("local-0")
    good = CellResult(cell=cell.id, outcome=Outcome.OK, step_seconds=[0.1, 0.1]).to_json()
    assert asyncio.run(check_result(node, cell, good)).outcome is Outcome.OK
    bad = {
        good[: len(good) // 2]: "cannot be read",
        "": "cannot be read",
        "[]": "cannot be read",
        good.replace('"ok"', '"lost"'): "cannot be read",
        good.replace("0.1", "-0.1"): "cannot be read",
        good.replace("0.1", "NaN"): "cannot be read",
        good + " " * (1 << 22): "bytes, at most",
        good.replace(cell.id, "mlp#2"): "not that of cell",
        good.replace("[0.1, 0.1]", "[40.0, 40.0]"): "not that of cell",  # more wall time than the cell has
    }
    for text, message in bad.items():
        with pytest.raises(WrongAnswer, match=message):
            asyncio.run(check_result(node, cell, text))


DRIVER = """
import json, sys, socket, os
stream = socket.socket(fileno=os.dup(0)).makefile("rwb", buffering=0)
send = lambda kind, **fields: stream.write(json.dumps({"kind": kind, **fields}).encode() + b"\\n")
ok = lambda cell: json.dumps({"cell": cell["id"], "outcome": "ok", "detail": "", "windows": []})
send("Workers", names=["w1", "w2"])
for line in stream:
    request = json.loads(line)
    cell, number = json.loads(request["cell"]), request["request_id"]
    what = cell["id"]
    if what == "twice":
        send("CellDone", request_id=number, result=ok(cell))
        send("CellDone", request_id=number, result=ok({"id": "another"}))
    elif what == "nobody":
        send("CellDone", request_id=10_000, result=ok(cell))
        send("CellDone", request_id=number, result=ok(cell))
    elif what == "cut off":
        send("CellDone", request_id=number, result=ok(cell)[:20])
    elif what == "lost":
        send("Workers", names=["w2"])
        send("CellLost", request_id=number, reason="its node died")
    elif what == "limit":
        send("CellLost", request_id=number, reason=str(request["limit_seconds"]))
    elif what == "garbage":
        stream.write(b"\\x00 not a message\\n")
"""


def test_what_a_driver_sends_is_checked_and_a_driver_that_ends_is_started_again(caplog: Any) -> None:
    async def work() -> None:
        executor = RayExecutor([sys.executable, "-c", DRIVER])
        async with OwnedTasks() as tasks:
            tasks.start(executor.keep_connected())
            await executor.started
            w1, w2 = executor.nodes()
            for name in ("twice", "nobody"):
                result = await executor.do(w1, work_of(Cell(name, "mlp", {})), "")
                assert isinstance(result, CellResult) and result.cell == name
            with pytest.raises(WrongAnswer, match="cannot be read"):
                await executor.do(w1, work_of(Cell("cut off", "mlp", {})), "")
            with pytest.raises(NotReady, match="its node died"):
                await executor.do(w1, work_of(Cell("lost", "mlp", {})), "")
            assert executor.nodes() == [w2]
            with pytest.raises(NotReady, match="is gone"):
                await executor.do(w1, work_of(Cell("any", "mlp", {})), "")
            with pytest.raises(NotReady, match="the Ray driver has ended"):
                await executor.do(w2, work_of(Cell("garbage", "mlp", {})), "")
            assert not executor.nodes()
            await all_nodes(executor, 2)
            again = await executor.do(w2, work_of(Cell("twice", "mlp", {})), "")
            assert isinstance(again, CellResult) and again.cell == "twice"

    asyncio.run(work())
    assert caplog.text.count("its answer is dropped") >= 2, "a second answer, and one that nobody has asked for"


@pytest.mark.parametrize(("environment", "seconds"), [({}, 2200.0), ({"environment": "a==1"}, 2200.0 + BUILD_SECONDS)])
def test_a_worker_has_the_time_to_build_the_environment_of_a_cell(environment: dict[str, str], seconds: float) -> None:
    async def work() -> None:
        executor = RayExecutor([sys.executable, "-c", DRIVER])
        async with OwnedTasks() as tasks:
            tasks.start(executor.keep_connected())
            await executor.started
            with pytest.raises(NotReady, match=f"lost: {seconds}$"):
                await executor.do(executor.nodes()[0], work_of(Cell("limit", "mlp", environment)), "")

    asyncio.run(work())


def test_a_cluster_that_cannot_be_reached_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        code = DRIVER.replace('send("Workers", names=["w1", "w2"])', 'send("ClusterFailed", reason="no cluster"); 1/0')
        executor = RayExecutor([sys.executable, "-c", code])
        async with OwnedTasks() as tasks:
            tasks.start(executor.keep_connected())
            with pytest.raises(NotReady, match="executor ray: no cluster"):
                await executor.started

    asyncio.run(work())


def test_trials_without_a_context_make_no_rows() -> None:
    left_out = LeftOut()
    trial = Trial(
        workload="mlp",
        settings={},
        context_id="",
        device_id="",
        outcome=Outcome.ERROR,
        step_seconds=(),
        fingerprint="{}",
        node="ray-1",
    )
    table = learn_table([trial], left_out)
    assert not table.rows and not table.suspects
    assert left_out.lines() == [f"left out: 1 trial of ray-1: {NO_CONTEXT}"]


def test_every_executor_explains_itself() -> None:
    assert list(EXECUTORS.entries) == ["agents", "local", "ray"]
    assert all(kind.help and kind.remedy for kind in EXECUTORS)
    assert [kind.name for kind in EXECUTORS if kind.has_contexts] == ["agents"]
