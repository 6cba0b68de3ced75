"""`pharoah-agent benchmark`, and orders of the provider on their way to the child."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pharoah_benchmarks.micro import MICRO_BENCHMARKS, Answer, Need, Peer
from pharoah_learning.evidence import BenchmarkResult
from pharoah_protocol.answer_digests import answer_digest
from pharoah_protocol.v1 import ProbeOrder, ProbePeer, ProbeResult
from pharoah_protocol.vocabulary import DeviceKind, Purpose
from pharoah_provider.agent import cli
from pharoah_provider.agent.benchmark import Measured, choose, superbench_result
from pharoah_provider.agent.stream import measure_order
from pharoah_provider.agent_connection import Order, OrderKind
from pharoah_provider.domain import Node
from pharoah_provider.micro_benchmarks import measure
from pharoah_provider.services.agent_answers import _probe
from pharoah_provider.storage.duckdb import DuckStorage
from pharoah_provider.superbench import read_results
from pharoah_serving.errors import Invalid, ProviderError
from tests.harness.listings import listed

CPU = {DeviceKind.CPU}
DIGEST = answer_digest("torch", b"numbers")
ORDER = Order(OrderKind.PROBE, {"repeats": 1}, "o")


def test_the_command_measures_prints_a_table_and_writes_a_result_of_superbench(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "results.jsonl"
    options = ["--superbench", str(file), "--node", "n1", "--profile", '{"threads": 1}']
    assert cli.main(["benchmark", "launch", "reproducibility", *options]) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split() == ["NAME", "RESOURCE", "MEDIAN", "SPREAD", "CORRECT"]
    assert [row.split()[0] for row in rows] == ["launch", "reproducibility"]
    assert all(re.search(r"compute +[\d.]+ ms +[\d.]+ %  yes$", row) for row in rows)
    (result,) = read_results(file)
    assert result.node == "n1" and result.metrics["pharoah-launch/return_code"] == 0
    seconds = result.metrics["pharoah-launch/time_s"]
    assert seconds is not None and f"{1000 * seconds:.3f} ms" in rows[0]


def test_the_command_prints_json_and_its_status_says_that_one_failed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = tmp_path / "missing"
    assert cli.main(["benchmark", "disk_read", "-o", "json", "--scratch-folder", str(missing)]) == 1
    printed = capsys.readouterr()
    (row,) = json.loads(printed.out)
    assert row["median_seconds"] is None and row["repeats"] == 0 and "name another folder" in row["error"]
    assert f"pharoah-agent: disk_read: NotPossible: {missing}" in printed.err


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["disk_wirte"], "disk_wirte: there is no such micro-benchmark; the closest ones are disk_write"),
        (["quantum"], "quantum: there is no such micro-benchmark; there are all_gather"),
        (["gemm", "--superbench", "x.jsonl"], "--superbench: --node is missing"),
        (["gemm", "--duty", "2"], "order: duty: 2.0 is invalid"),
        (["all_reduce"], "all_reduce: it needs --peer"),
        (["remote_disk"], "remote_disk: it needs --remote-folder"),
        (["all_reduce", "--peer", "1@host"], "--peer 1@host: expected RANK/SIZE@HOST:PORT"),
        (["all_reduce", "--peer", "2/2@host:1"], "--peer 2/2@host:1: peer.rank: 2"),
        (["all_reduce", "overlap", "--peer", "0/2@host:1"], "--peer: expected one NAME"),
    ],
)
def test_bad_options_are_named(
    arguments: list[str], named: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def facts(*_: object) -> dict[str, Any]:
        return {"device": "a CPU"}

    monkeypatch.setattr("pharoah_provider.agent.benchmark.read_json", facts)
    assert cli.main(["benchmark", *arguments]) == 1
    assert named in capsys.readouterr().err


def test_without_names_everything_runs_that_a_node_can_run_alone() -> None:
    alone = choose([], CPU, with_peer=False, with_remote=False)
    assert {one.name for one in alone} == {
        one.name for one in MICRO_BENCHMARKS if one.device is DeviceKind.CPU and one.need is None
    }
    with_remote = choose([], CPU, with_peer=False, with_remote=True)
    assert [one.name for one in with_remote if one.need is Need.REMOTE_FOLDER] == ["remote_disk"]
    assert len(with_remote) == len(alone) + 1
    with pytest.raises(ProviderError, match="gemm_cuda: this node has no cuda device"):
        choose(["gemm_cuda"], CPU, with_peer=False, with_remote=False)


def test_rows_of_all_benchmarks_fit_into_80_columns() -> None:
    for benchmark in MICRO_BENCHMARKS:
        slow = Measured(benchmark, Answer(seconds=(0.001, 99.9), correct=True))
        assert len(slow.row()) <= 80, slow.row()


def test_a_wrong_answer_is_shown_and_is_a_failure_for_superbench() -> None:
    wrong = Measured(MICRO_BENCHMARKS["reproducibility"], Answer(correct=False, digest=DIGEST))
    assert wrong.row().split() == ["reproducibility", "compute", "-", "-", "NO"]
    assert superbench_result("n1", [wrong]).metrics == {"pharoah-reproducibility/return_code": 2}


def test_the_spread_is_the_interquartile_range_over_the_median() -> None:
    measured = Measured(MICRO_BENCHMARKS["gemm"], Answer(seconds=(1.0, 2.0, 3.0, 4.0, 5.0)))
    assert measured.spread_ratio == pytest.approx(2 / 3), "quartiles 2 and 4 (R-7) over the median 3"


def test_an_order_of_the_provider_keeps_duty_and_peer() -> None:
    token = "t" * 43
    peer = ProbePeer(rank=1, size=2, rendezvous="n1:7300", partner="n1", token=token)
    order = ProbeOrder(order_id="o", benchmarks=["all_reduce"], repeats=3, limit_seconds=2.0, duty=0.5, peer=peer)
    wanted = measure_order("all_reduce", order, "/mnt/remote", ("10.0.0.0/8",))
    assert (wanted.duty, wanted.longest_seconds, wanted.remote_folder) == (0.5, 4.0, "/mnt/remote")
    assert wanted.peer == Peer(1, 2, "n1:7300", token, ("10.0.0.0/8",))
    older = measure_order("gemm", ProbeOrder(benchmarks=["gemm"], repeats=3, limit_seconds=2.0))
    assert older.duty == 1.0 and older.peer is None
    with pytest.raises(ValueError, match="peer: 2 benchmarks share one rendezvous"):
        measure_order("all_reduce", ProbeOrder(benchmarks=["all_reduce", "overlap"], repeats=1, peer=peer))


@pytest.mark.parametrize(
    ("field", "value"),
    [("rendezvous", "/etc/passwd"), ("rendezvous", "10.0.0.1:22"), ("rendezvous", "10.0.0.1"), ("token", "short"),
     ("token", "ü" * 43)],
)  # fmt: skip
def test_a_provider_can_send_a_node_to_no_file_no_service_and_no_stranger(field: str, value: str) -> None:
    peer = ProbePeer(**{"rank": 1, "size": 2, "rendezvous": "n1:7300", "token": "t" * 43, field: value})
    with pytest.raises(ValueError, match=f"peer\\.{field}"):
        measure_order("all_reduce", ProbeOrder(benchmarks=["all_reduce"], repeats=1, limit_seconds=1.0, peer=peer))


def test_beside_a_job_an_order_has_the_duty_of_its_benchmark() -> None:
    ordered: list[tuple[Any, ...]] = []

    async def probe(node: str, names: list[str], repeats: int, beside: bool, limit: float, **rest: Any) -> list[Any]:
        ordered.append((tuple(names), repeats, limit, rest["duty"]))
        return []

    fleet: Any = SimpleNamespace(server_facts=lambda _: (), probe=probe)
    asyncio.run(measure(fleet, "n1", True, names=("gemm", "memory_pattern", "disk_read")))
    assert ordered == [(("gemm",), 100, 4.0, 0.1), (("memory_pattern",), 20, 1.0, 0.1)]
    ordered.clear()
    asyncio.run(measure(fleet, "n1", True, 5.0, names=("memory_pattern",)))
    assert ordered == [(("memory_pattern",), 20, 0.5, 0.1)], "half a second of work within five"
    ordered.clear()
    asyncio.run(measure(fleet, "n1", False, names=("memory_pattern", "all_reduce")))
    assert ordered == [(("memory_pattern",), 20, 1.0, 1.0)], "idle it works all the time, and no partner is there"


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"correct": False, "seconds": [0.1]}, "probe.seconds: a wrong answer has no time"),
        ({"digest": "xyz"}, "probe.digest"),
        ({"digest": "a" * 65}, "probe.digest"),
    ],
)
def test_an_answer_that_nobody_can_have_given_is_refused(fields: dict[str, Any], named: str) -> None:
    result = ProbeResult(order_id="o", benchmark="b", started_at=1.0, ended_at=2.0, **fields)
    with pytest.raises(Invalid, match=named):
        _probe("n1", result, ORDER, 2.0)


@pytest.mark.parametrize("correct", [None, True, False])
def test_an_answer_reaches_the_evidence(correct: bool | None) -> None:
    result = ProbeResult(order_id="o", benchmark="b", started_at=1.0, ended_at=2.0, correct=correct, digest=DIGEST)
    assert _probe("n1", result, ORDER, 2.0) == BenchmarkResult("o", "n1", "b", False, 1.0, 2.0, (), "", correct, DIGEST)


def test_the_listing_names_wrong_answers_and_nodes_that_differ_from_their_class(tmp_path: Path) -> None:
    names = ("n1", "n2", "n3")
    good = [BenchmarkResult("o", name, "reproducibility", False, 1.0, 2.0, (0.1,), "", True, DIGEST) for name in names]
    other = answer_digest("torch", b"other numbers")
    differing = BenchmarkResult("p", "n2", "reproducibility", False, 3.0, 4.0, (0.1,), "", True, other)
    wrong = BenchmarkResult("p", "n3", "memory_pattern", False, 3.0, 4.0, (), "", False)

    async def inside() -> None:
        for name in names:
            await storage.nodes.put_node(Node(name, bytes(32), "boot", ("device=a",), ("device=a",), (0,)))
        await storage.evidence.append_probes(good, Purpose.BASELINE)
        assert await listed(storage, "wrong-answers") == []
        await storage.evidence.append_probes([differing, wrong], Purpose.BASELINE)
        rows = await listed(storage, "wrong-answers")
        assert [(row["node"], row["benchmark"], row["agreeing"], row["nodes"]) for row in rows] == [
            ("n3", "memory_pattern", None, None),
            ("n2", "reproducibility", 2, 3),
        ]

    storage = DuckStorage(tmp_path / "p.duckdb")
    try:
        asyncio.run(inside())
    finally:
        storage.close()
