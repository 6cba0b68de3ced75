"""The ranks of one cell: forked processes that train together, of which the first to fail decides.

When one rank fails, the others wait for it until their time is over. So the result of a cell is that of the rank that
failed first, and the others are ended.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any, NamedTuple

import torch
from torch import distributed

from pharoah_protocol.vocabulary import DeviceKind
from pharoah_system.parent_process import end_with_parent

GRACE_SECONDS = 2.0
"""How long the other ranks may go on after one has failed: to report an error of their own, which may be the cause."""
LOOPBACK = "lo"
"""The network interface of a machine to itself."""
BACKENDS = {DeviceKind.CPU: "gloo", DeviceKind.CUDA: "nccl"}
"""The library of collectives of torch on each kind of device."""


class RankEnd(NamedTuple):
    """How one rank ended."""

    rank: int
    text: str
    """What its work returned; empty when its process died."""
    status: int
    """The exit status of its process."""


class _Rank(NamedTuple):
    """A rank that runs."""

    number: int
    pid: int
    ended: int
    """A descriptor that can be read when the process has ended (pidfd_open(2))."""
    answer: int
    """A file in memory with what its work returned. A pipe would stay open in what the rank has started."""


def _loopback(_: int) -> str:
    return LOOPBACK


def on_ranks(
    count: int,
    device: DeviceKind,
    wait_seconds: float,
    work: Callable[[], str],
    failed: Callable[[str], bool],
    unmet: Callable[[Exception], str],
    enter: Callable[[int], str] = _loopback,
) -> list[RankEnd]:
    """Do `work` on every rank of one process group. The ranks in the order in which they ended.

    A rank that died, or whose text is that of a failure, ends the others after a moment; they are not in the list then.
    `wait_seconds` is how long a rank waits for the others in a collective. `enter` is called on each rank before it
    meets the others, with its number; it returns the network interface that the rank talks over. `unmet` is the text of
    a rank that could not meet the others, such as one for which there is no GPU.
    """
    meeting = os.memfd_create("pharoah-ranks")  # nothing to delete when these processes are killed
    running: dict[int, _Rank] = {}
    ends: list[RankEnd] = []
    deadline = None
    try:
        for number in range(count):
            rank = _start(number, count, device, wait_seconds, meeting, work, unmet, enter)
            running[rank.ended] = rank
        while running:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            ready, _, _ = select.select(list(running), [], [], left)
            if not ready:
                break
            for ended in ready:
                ends.append(_describe_end(running.pop(ended)))
                if deadline is None and (not ends[-1].text or failed(ends[-1].text)):
                    deadline = time.monotonic() + GRACE_SECONDS
    finally:
        for rank in running.values():
            os.kill(rank.pid, signal.SIGKILL)
            _describe_end(rank)
        os.close(meeting)
    return ends


def _start(
    number: int,
    count: int,
    device: DeviceKind,
    wait_seconds: float,
    meeting: int,
    work: Callable[[], str],
    unmet: Callable[[Exception], str],
    enter: Callable[[int], str],
) -> _Rank:
    answer = os.memfd_create("pharoah-rank")
    parent, pid = os.getpid(), os.fork()
    if pid:
        return _Rank(number, pid, os.pidfd_open(pid), answer)
    try:
        end_with_parent(parent)
        # torch waits for all ranks with this. A rank that dies while others still connect to it makes them fail, too.
        os.environ["TORCH_DIST_INIT_BARRIER"] = "1"
        store = distributed.FileStore(f"/proc/self/fd/{meeting}", count)  # type: ignore[attr-defined]
        try:
            join(number, count, device, store, wait_seconds, enter(number))
        except Exception as error:  # noqa: BLE001 - whatever it is, the cell must say so
            content = unmet(error).encode()
        else:
            content = work().encode()
        while content:
            content = content[os.write(answer, content) :]
        os._exit(0)
    except BaseException:  # noqa: BLE001 - a child must end here
        os._exit(1)


def _describe_end(rank: _Rank) -> RankEnd:
    """How a rank has ended that is about to end."""
    _, status = os.waitpid(rank.pid, 0)
    os.close(rank.ended)
    with os.fdopen(rank.answer, errors="replace") as answer:
        answer.seek(0)
        return RankEnd(rank=rank.number, text=answer.read(), status=os.waitstatus_to_exitcode(status))


def join(
    rank: int,
    count: int,
    device: DeviceKind,
    store: Any = None,
    wait_seconds: float = 60.0,
    interface: str = LOOPBACK,
) -> None:
    """Make this process one rank of a job on one node. Raises RuntimeError where there is no device for it."""
    os.environ.update(
        RANK=str(rank),
        LOCAL_RANK=str(rank),
        WORLD_SIZE=str(count),
        LOCAL_WORLD_SIZE=str(count),
        GLOO_SOCKET_IFNAME=interface,
    )
    if device is DeviceKind.CUDA:
        if rank >= (there := torch.cuda.device_count()):
            raise RuntimeError(f"no CUDA device for rank {rank}: torch sees {there}")
        torch.cuda.set_device(rank)
    distributed.init_process_group(
        BACKENDS[device], store=store, rank=rank, world_size=count, timeout=timedelta(seconds=wait_seconds)
    )
