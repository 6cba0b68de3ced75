"""Somebody without Pharoah computes on the cores of a job that has agreed to micro-benchmarks: the agent sees it."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pharoah.sidecar.agent_client import ask_node
from pharoah_protocol.agent_messages import NodeStateAnswer
from pharoah_protocol.node_profile import NO_LIMITS
from pharoah_protocol.v1 import ProbeOrder
from pharoah_provider.agent import look
from pharoah_provider.agent.known_jobs import (
    MAX_OWNERS,
    REMEMBERED_SECONDS,
    KnownJobs,
    Owner,
    Use,
    sum_computed_seconds,
    use_of,
    without_tasks,
)
from pharoah_provider.agent.local_socket import ticket_socket
from pharoah_provider.agent.look import BUSY_CORES, LOOK_SECONDS, Look
from pharoah_provider.agent.stream import AgentStream
from pharoah_provider.agent.telemetry import Telemetry
from pharoah_provider.domain import NOT_IDLE
from pharoah_system.local_sockets import peer_credentials
from tests.harness.loopback import KEYS, node
from tests.harness.other_user import become_nobody, needs_root
from tests.harness.until import until

FORK = multiprocessing.get_context("fork")
"""Forked, because another user may not be allowed to execute this Python."""


def _spin(prepare: Callable[[], object]) -> None:
    prepare()
    while True:
        pass


@contextmanager
def spinning(prepare: Callable[[], object] = bool) -> Iterator[int]:
    """A process that computes on one core, after it has prepared itself; gives its number."""
    process = FORK.Process(target=_spin, args=(prepare,), daemon=True)
    process.start()
    try:
        assert process.pid is not None
        yield process.pid
    finally:
        process.kill()
        process.join()


def known_jobs(clock: Callable[[], float] = time.monotonic) -> KnownJobs:
    """This process has asked for a ticket."""
    jobs = KnownJobs(clock)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        jobs.ask(theirs)
    return jobs


# what a job is


def test_processes_of_a_user_who_asked_are_known_until_the_ticket_is_too_old() -> None:
    now = [0.0]
    jobs = known_jobs(lambda: now[0])
    with spinning() as process:
        assert {os.getpid(), process} <= set(jobs.processes())
        now[0] = REMEMBERED_SECONDS
        assert set(jobs.processes()) == set()
    assert set(KnownJobs().processes()) == set()


@needs_root
def test_processes_of_another_user_are_not_known() -> None:
    jobs = known_jobs()
    with spinning(become_nobody) as process:
        asyncio.run(until(lambda: Path(f"/proc/{process}").stat().st_uid != 0, "another user"))
        assert process not in set(jobs.processes())


def test_tasks_of_a_slurm_step_are_one_job_and_steps_of_two_jobs_are_two() -> None:
    first, second, other = (
        f"0::/slurm/job_{at}\n" for at in ("7/step_0/user/task_0", "7/step_0/user/task_1", "8/step_0")
    )
    assert without_tasks(first) == without_tasks(second) != without_tasks(other) == other


def test_the_agent_knows_who_asks_its_socket(tmp_path: Path) -> None:
    jobs, path = KnownJobs(), tmp_path / "agent.sock"

    async def inside() -> None:
        async with ticket_socket(path, "n1", "boot", KEYS["n1"], NO_LIMITS, NodeStateAnswer, jobs):
            assert set(jobs.processes()) == set()
            await ask_node(str(path), 5.0)

    asyncio.run(inside())
    assert os.getpid() in set(jobs.processes())


def test_the_number_of_remembered_jobs_is_bounded() -> None:
    jobs = known_jobs()
    (mine,) = jobs._asked_at
    jobs._asked_at = {Owner(number, ""): 0.0 for number in range(10**6, 10**6 + MAX_OWNERS)}
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert peer_credentials(theirs).process == os.getpid()
        jobs.ask(theirs)
    assert len(jobs._asked_at) == MAX_OWNERS and [*jobs._asked_at][-1] == mine


# what it has computed


@pytest.mark.parametrize(
    ("before", "after", "seconds"),
    [
        ({1: Use(0, 5.0)}, {1: Use(0, 5.3)}, 0.3),
        ({1: Use(0, 5.0)}, {1: Use(0, 5.1), 2: Use(1, 0.2)}, 0.3),  # one has begun
        ({1: Use(0, 5.0), 2: Use(1, 9.0)}, {1: Use(0, 14.3)}, 0.3),  # one has ended: its parent counts 9.2 s more
        ({1: Use(0, 5.0), 2: Use(0, 9.0)}, {1: Use(0, 5.3)}, 0.3),  # its parent is not known
        ({}, {}, 0.0),
    ],
    ids=["goes on", "begins", "ends", "ends elsewhere", "none"],
)
def test_what_processes_have_computed_is_counted_once(
    before: Mapping[int, Use], after: Mapping[int, Use], seconds: float
) -> None:
    assert sum_computed_seconds(before, after) == pytest.approx(seconds)


def test_a_real_process_is_measured_on_its_own_cores_only() -> None:
    core, *others = sorted(os.sched_getaffinity(0))
    with spinning(lambda: os.sched_setaffinity(0, [core])) as process:

        def worked() -> bool:
            return use_of([process], [core]).get(process, Use(0, 0.0)).seconds >= 0.05

        asyncio.run(until(worked, "a spinning process to have computed"))
        assert use_of([process], [core])[process].parent == os.getpid()
        assert use_of([process], others) == {}
    assert use_of([process], [core]) == {}, "it has ended"


# the look


def looking(monkeypatch: pytest.MonkeyPatch, cores: list[float], by_job: list[float], **changes: Any) -> Look:
    """Looks in which the core, and the known job on it, have worked so long since the last reading."""
    totals, jobs = iter(_sums(cores)), iter(_sums(by_job))
    stat = "cpu0 {} 0 0 0 0 0 0 0 0 0\n"
    now = iter(range(10**6))
    monkeypatch.setattr(look, "own_processes", lambda: [1])
    monkeypatch.setattr(look, "use_of", lambda processes, _: {1: Use(0, next(jobs))} if processes else {})
    content = {
        "gpu_users": set,
        "stat": lambda: stat.format(round(next(totals) * look.TICKS_PER_SECOND)),
        "clock": lambda: next(now) * LOOK_SECONDS,
        "pause": _at_once,
    }
    return Look((0,), **{**content, **changes})


async def _at_once(_: float) -> None:
    return


def _sums(steps: list[float]) -> list[float]:
    """Readings before and after each step."""
    total, found = 0.0, []
    for step in steps:
        found += [total, total := total + step]
    return found


FULL, ALLOWED = LOOK_SECONDS, 0.9 * BUSY_CORES * LOOK_SECONDS


@pytest.mark.parametrize(
    ("cores", "by_job", "known_only"),
    [
        ([FULL], [FULL], True),
        ([FULL], [FULL - ALLOWED], True),
        ([FULL] * 3, [0.0] * 3, False),
        ([FULL] * 3, [FULL / 2] * 3, False),
        ([FULL] * 3, [FULL / 2, FULL / 2, FULL], True),
    ],
    ids=["the job", "the job and a daemon", "a stranger", "a stranger beside the job", "a daemon for a moment"],
)
def test_a_stranger_is_what_the_known_jobs_have_not_computed(
    monkeypatch: pytest.MonkeyPatch, cores: list[float], by_job: list[float], known_only: bool
) -> None:
    assert asyncio.run(looking(monkeypatch, cores, by_job).only_known_jobs()) is known_only


def test_a_process_of_nobody_we_know_on_a_gpu_is_a_stranger(monkeypatch: pytest.MonkeyPatch) -> None:
    for users, known_only in (({1}, True), ({2}, False)):
        eyes = looking(monkeypatch, [FULL] * 3, [FULL] * 3, gpu_users=lambda users=users: users)
        assert asyncio.run(eyes.only_known_jobs()) is known_only


@needs_root
def test_a_real_stranger_on_the_core_of_a_known_job_is_seen() -> None:
    core = min(os.sched_getaffinity(0))

    def prepare() -> None:
        os.sched_setaffinity(0, [core])
        become_nobody()

    with (
        spinning(lambda: os.sched_setaffinity(0, [core])),
        spinning(prepare) as stranger,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(look, "own_processes", lambda: [os.getpid()])
        asyncio.run(until(lambda: Path(f"/proc/{stranger}").stat().st_uid != 0, "another user"))
        assert not asyncio.run(Look((core,), known_jobs()).only_known_jobs())


@pytest.mark.parametrize("beside_job", [True, False])
def test_an_agent_refuses_an_order_beside_a_job_where_it_sees_a_stranger(
    monkeypatch: pytest.MonkeyPatch, beside_job: bool
) -> None:
    class Touched(Exception):
        pass

    class Probes:
        async def warm(self, duty: float) -> None:
            raise Touched

    async def inside() -> None:
        eyes, unused = looking(monkeypatch, [FULL] * 3, [0.0] * 3), None
        stream = AgentStream(node("n2"), unused, Telemetry(), Probes(), unused, eyes)  # type: ignore[arg-type]
        await stream._probe(ProbeOrder(order_id="o", benchmarks=["gemm"], repeats=3, beside_job=beside_job))
        sent = stream._out.get_nowait()
        assert sent is not None and sent.probe.error == NOT_IDLE

    if beside_job:
        asyncio.run(inside())
    else:
        with pytest.raises(Touched):
            asyncio.run(inside())
