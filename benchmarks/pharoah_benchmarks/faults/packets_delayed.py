"""Packets of one rank wait on their way."""

from __future__ import annotations

import heapq
import mmap
import os
import select
import signal
import socket
import struct
import time

from pharoah_benchmarks.faults._fault import Dose, Fault, FaultError, Schedule
from pharoah_benchmarks.faults._tunnel import (
    NAME,
    PACKET_BYTES,
    RECEIVER_OFFSET,
    SENDER_OFFSET,
    open_tunnel,
    rank_at,
)
from pharoah_benchmarks.micro import Resource
from pharoah_protocol.vocabulary import DeviceKind
from pharoah_system.parent_process import end_with_parent

_SCHEDULE = struct.Struct("4d")
_NEEDS = "/dev/net/tun and a network namespace (root, or user namespaces)"

_POSSIBLE = "possible"


def _attempt() -> str:
    """Why the ranks cannot have tunnels, or `_POSSIBLE`. The carrier itself needs no network."""
    try:
        os.close(open_tunnel(0))
    except OSError as error:
        return str(error)
    return _POSSIBLE


class _Carrier:
    """Each rank in a network namespace of its own, and a forked process that carries their packets."""

    def __init__(self, ranks: int, rank: int) -> None:
        self._delayed = rank
        self._shared = mmap.mmap(-1, _SCHEDULE.size)
        """The schedule, once the delayed rank trains; zeros before."""
        pairs = [socket.socketpair() for _ in range(ranks)]
        self._to_carrier = [pair[0] for pair in pairs]
        parent, self._pid = os.getpid(), os.fork()
        if self._pid == 0:
            try:
                end_with_parent(parent)
                for one in self._to_carrier:
                    one.close()
                pairs[0][1].sendall(_attempt().encode())
                self._carry([pair[1] for pair in pairs])
            finally:
                os._exit(1)
        for pair in pairs:
            pair[1].close()
        if (answer := self._to_carrier[0].recv(1000).decode()) != _POSSIBLE:
            self.end()
            raise FaultError(f"it needs {_NEEDS}: {answer}")

    def enter(self, rank: int) -> str:
        tunnel = open_tunnel(rank)
        socket.send_fds(self._to_carrier[rank], [b"t"], [tunnel])
        os.close(tunnel)
        return NAME

    def begin(self, schedule: Schedule) -> None:
        values = (schedule.dose, schedule.onset_seconds, schedule.ramp_seconds, schedule.began)
        self._shared[:] = _SCHEDULE.pack(*values)

    def end(self) -> None:
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        for one in self._to_carrier:
            one.close()

    def _delay_seconds(self, packet: bytes) -> float:
        if self._delayed not in (rank_at(packet, SENDER_OFFSET), rank_at(packet, RECEIVER_OFFSET)):
            return 0.0
        dose, onset, ramp, began = _SCHEDULE.unpack(self._shared[:])
        return dose * Schedule(dose=dose, onset_seconds=onset, ramp_seconds=ramp, began=began).share() if began else 0.0

    def _carry(self, meeting: list[socket.socket]) -> None:
        """Hand every packet to its receiver when it is due. Ends with the parent."""
        tunnels = [socket.recv_fds(one, 1, 1)[1][0] for one in meeting]
        waiting: list[tuple[float, int, int, bytes]] = []
        """Due time, a running number, the tunnel of the receiver, the packet."""
        count = 0
        while True:
            wait = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
            for tunnel in select.select(tunnels, [], [], wait)[0]:
                packet = os.read(tunnel, PACKET_BYTES)
                receiver = rank_at(packet, RECEIVER_OFFSET)
                if 0 <= receiver < len(tunnels):
                    count += 1
                    due = time.monotonic() + self._delay_seconds(packet)
                    heapq.heappush(waiting, (due, count, tunnels[receiver], packet))
            while waiting and waiting[0][0] <= time.monotonic():
                _, _, tunnel, packet = heapq.heappop(waiting)
                try:
                    os.write(tunnel, packet)
                except (
                    OSError
                ):  # the receiver has ended, or its queue is full: a packet is lost, and TCP sends it again
                    continue


FAULT = Fault(
    name="packets_delayed",
    help="each rank gets a network namespace with a TUN device, and a process carries the packets between them; from "
    "the onset on those to and from one rank wait. The kernel's own TCP sees real packets that are late. The store "
    "where ranks meet is a file and is not delayed",
    resource=Resource.NETWORK,
    dose=Dose(unit="seconds that each packet waits, one way", least=0.0001, most=60, examples=(0.005, 0.05)),
    between=_Carrier,
    least_ranks=2,
    device=DeviceKind.CPU,
    needs=_NEEDS,
)
