"""Micro-benchmarks of two processes, with two real children on this machine."""

from __future__ import annotations

import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from torch import distributed

from pharoah_benchmarks.micro import Answer, MeasureOrder, Peer
from pharoah_benchmarks.micro._measure import measure
from pharoah_system.network_interfaces import interface_to

TOGETHER = ("all_reduce", "all_gather", "all_to_all", "point_to_point", "overlap")


class Ranks:
    """Children that measure, one for each rank."""

    def __init__(self, stack: ExitStack, size: int) -> None:
        self._children = [
            stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-m", "pharoah_benchmarks.micro"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    text=True,
                )
            )
            for _ in range(size)
        ]
        for child in self._children:
            stack.callback(child.kill)

    def measure(self, name: str, rendezvous: str, repeats: int = 3, limits: tuple[float, ...] = ()) -> list[Answer]:
        """The answers of all ranks to one order."""
        for rank in range(len(self._children)):
            limit = limits[rank] if limits else 5.0
            peer = Peer(rank, len(self._children), rendezvous, token="t" * 43, networks=("127.0.0.0/8",))
            self.send(rank, name, peer, repeats, limit)
        return [self.answer(rank) for rank in range(len(self._children))]

    def send(self, rank: int, name: str, peer: Peer, repeats: int = 3, limit_seconds: float = 5.0) -> None:
        order = MeasureOrder(benchmark=name, repeats=repeats, limit_seconds=limit_seconds, peer=peer)
        stdin = self._children[rank].stdin
        assert stdin is not None
        stdin.write(order.to_json() + "\n")
        stdin.flush()

    def answer(self, rank: int) -> Answer:
        stdout = self._children[rank].stdout
        assert stdout is not None
        return Answer.from_json(stdout.readline())

    def kill(self, rank: int) -> None:
        self._children[rank].kill()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_two_processes_measure_all_operations_and_are_right(tmp_path: Path) -> None:
    with ExitStack() as stack:
        ranks = Ranks(stack, 2)
        for name in TOGETHER:
            meeting = tmp_path / name
            for answer in ranks.measure(name, str(meeting)):
                assert answer.error == "" and answer.correct is True, (name, answer)
                assert len(answer.seconds) == 3 and min(answer.seconds) > 0
            assert not meeting.exists(), "the file of the rendezvous is deleted"


def test_two_processes_meet_at_a_port_and_make_the_same_number_of_repeats() -> None:
    with ExitStack() as stack:
        answers = Ranks(stack, 2).measure("all_reduce", f"127.0.0.1:{free_port()}", repeats=10_000, limits=(0.2, 4.0))
    assert [answer.error for answer in answers] == ["", ""]
    counts = {len(answer.seconds) for answer in answers}
    assert len(counts) == 1, "rank 0 ends the measurement of both"
    assert 0 < counts.pop() < 10_000


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("at_port", [True, False])
def test_a_process_whose_partner_never_comes_ends_with_an_error(
    rank: int, at_port: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pharoah_benchmarks.micro_kernels.together.PARTNER_SECONDS", 1.0)
    rendezvous = f"127.0.0.1:{free_port()}" if at_port else str(tmp_path / "meeting")
    order = MeasureOrder(benchmark="all_reduce", repeats=3, limit_seconds=5.0, peer=Peer(rank, 2, rendezvous))
    with pytest.raises(Exception, match=r"(?i)time(d )?out|refused|failed to connect"):
        measure(order)
    assert not distributed.is_initialized()
    assert not (tmp_path / "meeting").exists(), "each rank deletes the file that it may have made"


def test_a_process_whose_partner_dies_ends_with_an_error_and_measures_again(tmp_path: Path) -> None:
    with ExitStack() as stack:
        ranks = Ranks(stack, 2)
        first = ranks.measure("all_reduce", str(tmp_path / "first"))
        assert [answer.correct for answer in first] == [True, True]
        meeting = str(tmp_path / "second")
        ranks.send(0, "all_reduce", Peer(0, 2, meeting), repeats=10**6, limit_seconds=60.0)
        ranks.send(1, "all_reduce", Peer(1, 2, meeting), repeats=10**6, limit_seconds=60.0)
        ranks.send(1, "gemm", Peer(1, 2, meeting))
        ranks.kill(1)
        answer = ranks.answer(0)
        assert answer.error and answer.seconds == ()
        ranks.send(0, "gemm", Peer(0, 2, meeting))
        assert ranks.answer(0).error == ""


def test_a_group_talks_over_the_interface_that_leads_to_its_meeting_point() -> None:
    """Where the host has several networks, its name may be that of another one than the network to be measured."""
    assert interface_to("127.0.0.1") == interface_to("localhost") == "lo"
    assert interface_to("192.0.2.1") == _default_interface()  # RFC 5737: an address that is nowhere
    assert interface_to("no host has this name") == ""


def _default_interface() -> str:
    """The interface of the route to everywhere, which the kernel lists with the destination 0; empty without one."""
    lines = Path("/proc/net/route").read_text().splitlines()[1:]
    return next((line.split()[0] for line in lines if line.split()[1] == "00000000"), "")
