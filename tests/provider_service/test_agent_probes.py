"""Orders of micro-benchmarks on the agent: what is left of them when they are over."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any, cast

import pytest

from pharoah_protocol.node_profile import NO_LIMITS
from pharoah_protocol.v1 import AgentMessage, ProbeOrder
from pharoah_provider.agent.child_processes import Child
from pharoah_provider.agent.look import Look
from pharoah_provider.agent.stream import AgentStream
from pharoah_provider.agent.telemetry import Telemetry
from tests.harness.loopback import node as known_node


def test_no_process_that_has_used_a_gpu_is_left_beside_the_next_job() -> None:
    """It would keep memory of the GPU. One that measures processors waits for the next order, because it starts slowly.
    On a machine without a GPU the first order fails, after the process has started."""

    async def inside() -> None:
        async with Child("pharoah_benchmarks.micro", NO_LIMITS) as child:
            nowhere = cast(Any, None)
            stream = AgentStream(known_node("n1"), nowhere, Telemetry(), child, nowhere, Look((0,)))
            for benchmark, stays in (("gemm_cuda", False), ("gemm", True)):
                order = ProbeOrder(order_id=benchmark, benchmarks=[benchmark], repeats=1, limit_seconds=1.0)
                await stream._probe(order)
                message = stream._out.get_nowait()
                assert isinstance(message, AgentMessage) and message.probe.benchmark == benchmark
                assert child.is_warm is stays, message.probe.error

    asyncio.run(inside())


def test_a_node_on_which_nothing_can_be_started_answers_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as one whose folder for temporary files is full or gone: the provider would wait for minutes."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))

    async def inside() -> None:
        async with Child("pharoah_benchmarks.micro", NO_LIMITS) as child:
            nowhere = cast(Any, None)
            stream = AgentStream(known_node("n1"), nowhere, Telemetry(), child, nowhere, Look((0,)))
            await stream._probe(ProbeOrder(order_id="o", benchmarks=["gemm"], repeats=1, limit_seconds=1.0))
            message = stream._out.get_nowait()
            assert message is not None and "No such file" in message.probe.error

    asyncio.run(inside())


def test_an_order_that_is_sent_again_after_its_stop_runs() -> None:
    """The first one needs a moment to end, as one that measures does."""

    async def inside() -> None:
        nowhere = cast(Any, None)
        stream = AgentStream(known_node("n1"), nowhere, Telemetry(), nowhere, nowhere, Look((0,)))
        ended: list[str] = []

        async def work(name: str) -> None:
            try:
                await asyncio.sleep(600 if name == "first" else 0)
            finally:
                await asyncio.sleep(0.05 if name == "first" else 0.1)
                ended.append(name)

        async with stream._orders:
            first = stream._start("o", work("first"))
            await asyncio.sleep(0)
            stream._stop("o")
            second = stream._start("o", work("second"))
            await asyncio.wait({first, second})
            assert ended == ["first", "second"] and not stream._by_id

    asyncio.run(inside())
