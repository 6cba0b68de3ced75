"""What several processes do together: collectives, messages, and computing while they communicate."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, distributed

from pharoah_benchmarks.campaign.ranks import BACKENDS, LOOPBACK
from pharoah_benchmarks.micro import Check, CheckedKernel, Peer
from pharoah_benchmarks.micro_kernels.meeting import meet
from pharoah_benchmarks.micro_kernels.numbers import digest, waiting
from pharoah_protocol.vocabulary import DeviceKind
from pharoah_system.files import open_lock
from pharoah_system.network_interfaces import interface_to

PARTNER_SECONDS = 10.0
"""How long a process waits for its partner, at the beginning and in each collective. The agent waits 15 s longer than
the measurement may take, so both sides end with an error of their own."""
_INTERFACE = "GLOO_SOCKET_IFNAME"
"""The variable that names the network interface of a group."""
_LOCAL_HOSTS = ("localhost", "127.0.0.1")


class Operation(StrEnum):
    """What the processes do in one repeat."""

    ALL_REDUCE = "all_reduce"
    ALL_GATHER = "all_gather"
    ALL_TO_ALL = "all_to_all"
    POINT_TO_POINT = "point_to_point"
    """Each pair of neighbours sends the numbers there and back."""


class _Group(CheckedKernel):
    """A process group for one measurement. Rank 0 decides how many repeats all of them make."""

    def __init__(self, peer: Peer, device: str) -> None:
        """Raises torch's error when the partner does not come within PARTNER_SECONDS."""
        self.peer, self.device, self._wait = peer, device, waiting(device)
        self._more = torch.zeros(1, device=device)
        with ExitStack() as owned:
            owned.enter_context(_join(peer, device))
            distributed.barrier()
            self._owned = owned.pop_all()

    def goes_on(self, wanted: bool) -> bool:
        self._more.fill_(float(wanted))
        distributed.broadcast(self._more, 0)
        return bool(self._more.item())

    def close(self) -> None:
        self._owned.close()


@contextmanager
def _join(peer: Peer, device: str) -> Iterator[None]:
    """Inside it this process is in the group. Nothing of it is left afterwards: the child measures other things."""
    limit, before = timedelta(seconds=PARTNER_SECONDS), os.environ.get(_INTERFACE)
    try:
        if before is None and (interface := _interface_to(peer)):
            os.environ[_INTERFACE] = interface
        kind = DeviceKind(device)
        # Without a device NCCL takes that of the number of the rank, although each node computes on one of its own.
        own = torch.device(device, torch.cuda.current_device()) if kind is DeviceKind.CUDA else None
        distributed.init_process_group(
            BACKENDS[kind],
            store=_store(peer, limit),
            rank=peer.rank,
            world_size=peer.size,
            timeout=limit,
            device_id=own,
        )
        yield
    finally:
        if distributed.is_initialized():
            distributed.destroy_process_group()
        if not peer.has_port:  # by each rank, because the store of a rank that leaves later makes the file again
            Path(peer.rendezvous).unlink(missing_ok=True)
        os.environ.pop(_INTERFACE, None)
        if before is not None:
            os.environ[_INTERFACE] = before


def _interface_to(peer: Peer) -> str:
    """The network interface by which this process reaches the meeting point, so that its network is what is measured;
    gloo takes that of the name of the host. Empty where there is none, as for a meeting in a file."""
    host = peer.rendezvous.rpartition(":")[0].strip("[]") if peer.has_port else ""
    if not host or host in _LOCAL_HOSTS:
        return LOOPBACK if host else ""
    return interface_to(host)


def _store(peer: Peer, limit: timedelta) -> Any:
    """At a port, only partners that know the token of the meeting get to a store, and only theirs is opened."""
    if not peer.has_port:
        # Made here: torch would follow a link, and use whatever others have left in the file.
        os.close(open_lock(Path(peer.rendezvous)))
        store = distributed.FileStore(peer.rendezvous, peer.size)  # type: ignore[attr-defined]
        store.set_timeout(limit)
        return store
    opened: list[Any] = []

    def open_store() -> int:
        # The others get the port when the store is open.
        opened.append(_open_store("127.0.0.1", 0, peer, limit))
        return int(opened[0].port)

    host, port = meet(peer, limit.total_seconds(), open_store)
    return opened[0] if opened else _open_store(host, port, peer, limit)


def _open_store(host: str, port: int, peer: Peer, limit: timedelta) -> Any:
    """The store of rank 0, or a connection to it. Nobody waits for the others here: they have met."""
    return distributed.TCPStore(host, port, peer.size, peer.rank == 0, limit, False)  # type: ignore[attr-defined]


class Communication(_Group):
    """One operation on `sent_bytes` of each process."""

    def __init__(self, peer: Peer, device: str, operation: Operation, sent_bytes: int) -> None:
        count = sent_bytes // 4 // peer.size * peer.size
        self._own = torch.full((count,), float(peer.rank + 1), device=device)
        self._result = torch.empty(count * (peer.size if operation is Operation.ALL_GATHER else 1), device=device)
        self._operation = operation
        super().__init__(peer, device)  # after the memory is there: who joins a group and ends leaves others waiting
        self._run: Callable[[], object] = {
            Operation.ALL_REDUCE: self._all_reduce,
            Operation.ALL_GATHER: lambda: distributed.all_gather_into_tensor(self._result, self._own),
            Operation.ALL_TO_ALL: lambda: distributed.all_to_all_single(self._result, self._own),
            Operation.POINT_TO_POINT: self._there_and_back,
        }[operation]

    def __call__(self) -> None:
        self._run()
        self._wait()

    def _all_reduce(self) -> None:
        self._result.copy_(self._own)
        distributed.all_reduce(self._result)

    def _there_and_back(self) -> None:
        other = self.peer.rank ^ 1
        if other >= self.peer.size:
            return
        if self.peer.rank < other:
            distributed.send(self._own, other)
            distributed.recv(self._result, other)
        else:
            distributed.recv(self._result, other)
            distributed.send(self._own, other)

    def check(self) -> Check:
        """The numbers are those that the ranks have sent; all of them are exact."""
        expected = self._compute_expected()
        return Check(torch.equal(self._result, expected), digest(expected))

    def _compute_expected(self) -> Tensor:
        ranks = torch.arange(1.0, self.peer.size + 1, device=self.device)
        match self._operation:
            case Operation.ALL_REDUCE:
                return torch.full_like(self._result, float(ranks.sum()))
            case Operation.ALL_GATHER | Operation.ALL_TO_ALL:
                return ranks.repeat_interleave(len(self._result) // self.peer.size)
            case Operation.POINT_TO_POINT:
                other = self.peer.rank ^ 1
                return self._result if other >= self.peer.size else torch.full_like(self._result, other + 1.0)


class Overlap(_Group):
    """An all-reduce while the process computes products: what one repeat takes shows whether both go on at once."""

    def __init__(self, peer: Peer, device: str, sent_bytes: int, rows: int, products: int) -> None:
        self._sent = torch.empty(sent_bytes // 4, device=device)
        self._ones = torch.ones(rows, rows, device=device)
        self._product = torch.empty_like(self._ones)
        self._products = products
        super().__init__(peer, device)

    def __call__(self) -> None:
        self._sent.fill_(self.peer.rank + 1)
        sending = distributed.all_reduce(self._sent, async_op=True)
        for _ in range(self._products):
            torch.mm(self._ones, self._ones, out=self._product)
        if sending is not None:
            sending.wait()
        self._wait()

    def check(self) -> Check:
        """Both the sum over the ranks and the product are exact."""
        total = self.peer.size * (self.peer.size + 1) / 2
        right = bool((self._sent == total).all()) and bool((self._product == len(self._ones)).all())
        return Check(right)
