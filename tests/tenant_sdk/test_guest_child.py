"""The child that measures for a sidecar: real processes. It is modest, does what is on the list, and never stays."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from pharoah.sidecar.guest_child import MODULE, done
from pharoah_benchmarks.guest_probe import NICENESS, check
from pharoah_benchmarks.micro import MICRO_BENCHMARKS
from pharoah_protocol.guest_probes import GuestOrder
from pharoah_protocol.vocabulary import ProbeStatus
from pharoah_system.memory_group import FIRST_KILLED
from tests.harness.processes import descendants
from tests.harness.until import until, wait_until

SECONDS = 120.0
"""Longest time of one order on a busy machine."""
ORDER = GuestOrder(
    order_id=b"o" * 16,
    run_id=b"r" * 16,
    challenge=b"c" * 32,
    benchmark="gemm",
    repeats=8,
    limit_milliseconds=400,
    duty_thousandths=500,
    expires_at=2_000_000_000,
)
ROOT = Path(__file__).parents[2]


def children(pid: int = 0) -> list[int]:
    """Children of this or another process that measure."""
    return [one for one in descendants(pid or os.getpid()) if MODULE in " ".join(_command(one))]


def _command(pid: int) -> list[str]:
    try:
        return psutil.Process(pid).cmdline()
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return []


def test_a_product_is_measured() -> None:
    result = asyncio.run(done(ORDER, SECONDS))
    assert result.status is ProbeStatus.MEASURED and result.order == ORDER
    assert 1 <= len(result.seconds) <= ORDER.repeats
    assert min(result.seconds) > MICRO_BENCHMARKS["gemm"].fastest_seconds
    assert children() == []


@pytest.mark.parametrize("benchmark", ["disk_write", "attention", "all_reduce", "memory_pattern_cuda", "nothing"])
def test_what_is_not_on_the_list_does_not_run(benchmark: str) -> None:
    result = asyncio.run(done(replace(ORDER, benchmark=benchmark), SECONDS))
    assert result.status is ProbeStatus.FAILED and result.seconds == ()


def test_an_order_gives_a_child_no_folder_and_no_partner() -> None:
    sound = '{"benchmark": "gemm", "repeats": 2, "limit_seconds": 1'
    assert check(sound + "}").benchmark == "gemm"
    for further in (', "scratch_folder": "/tmp"}', ', "remote_folder": "/tmp"}',
                    ', "peer": {"rank": 0, "size": 2, "rendezvous": "localhost:1"}}'):  # fmt: skip
        with pytest.raises(ValueError, match="neither folders nor partners"):
            check(sound + further)


def test_a_child_works_at_a_low_priority_and_is_the_first_that_the_kernel_kills() -> None:
    async def work() -> None:
        measuring = asyncio.create_task(done(replace(ORDER, benchmark="memory", repeats=64), SECONDS))
        await until(lambda: any(_is_modest(one) for one in children()), "a modest child", 60)
        measuring.cancel()
        await asyncio.wait({measuring})
        assert children() == [], "it ends with the order"

    asyncio.run(work())


def _is_modest(pid: int) -> bool:
    try:
        killed_first = Path(f"/proc/{pid}/oom_score_adj").read_text().strip() == str(FIRST_KILLED)
        return killed_first and psutil.Process(pid).nice() >= NICENESS
    except (OSError, psutil.NoSuchProcess):
        return False


def test_a_child_that_takes_too_long_is_stopped() -> None:
    result = asyncio.run(done(ORDER, 0.2))  # torch alone takes longer to import
    assert result.status is ProbeStatus.FAILED and children() == []


def test_a_child_ends_with_its_sidecar_when_that_is_killed() -> None:
    program = """
import asyncio
from tests.tenant_sdk.test_guest_child import ORDER, SECONDS, done
asyncio.run(done(ORDER, SECONDS))
"""
    with subprocess.Popen([sys.executable, "-c", program], cwd=ROOT) as sidecar:
        wait_until(lambda: bool(children(sidecar.pid)), "the child", 60)
        (child,) = children(sidecar.pid)
        sidecar.send_signal(signal.SIGKILL)
    wait_until(lambda: MODULE not in " ".join(_command(child)), "the child to end")
