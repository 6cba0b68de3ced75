"""Orders of micro-benchmarks on the agent: what is left of them when they are over."""

from __future__ import annotations

import asyncio
from typing import Any, cast

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
