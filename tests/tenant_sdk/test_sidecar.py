"""A sidecar on its real socket: wrong messages end nothing but themselves, and the last connection ends the sidecar."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from pharoah._settings import Settings
from pharoah._sidecar_link import SidecarLink
from pharoah.sidecar.sidecar import Sidecar
from pharoah_protocol.local_messages import decode
from pharoah_protocol.rank_messages import (
    Check,
    CheckAnswer,
    End,
    Ended,
    Failure,
    Hello,
    HelloAnswer,
    Launch,
    LaunchAnswer,
    RunStarted,
    Status,
    StatusAnswer,
    Steps,
    VerdictChanged,
)
from pharoah_protocol.vocabulary import EndState, VerdictStatus

RUN_ID = bytes(range(16))
T = TypeVar("T")


def served(folder: Path, work: Callable[[str], T]) -> T:
    """What `work`, in a thread, gives for the path of a running sidecar; the sidecar has ended by then."""

    async def inside() -> T:
        path = folder / "sidecar.sock"
        settings = Settings(state_folder=str(folder / "state"), shutdown_timeout_seconds=1.0)
        serving = asyncio.create_task(Sidecar(path, settings, RUN_ID).serve())
        while not path.exists():
            await asyncio.sleep(0.01)
        result = await asyncio.to_thread(work, str(path))
        async with asyncio.timeout(10):
            await serving
        assert not path.exists()
        return result

    return asyncio.run(inside())


def test_a_wrong_message_is_answered_by_its_error_and_ends_nothing_else(tmp_path: Path) -> None:
    def work(path: str) -> list[bytes]:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as rank:
            rank.settimeout(5)
            rank.connect(path)
            answers = []
            for packet in (
                b'{"verb":"dance","wants_answer":true}',
                b'{"verb":"hello","wants_answer":true,"rank":"first"}',
                b'{"verb":"capture","wants_answer":true,"rank":0,"fingerprint":"no JSON"}',
                b'{"verb":"verdict_changed","wants_answer":true,"verdict":{}}',
                b'{"verb":"dance"}',  # wants no answer and gets none
                b'{"verb":"status","wants_answer":true}',
            ):
                rank.send(packet)
                if b"wants" in packet:
                    answers.append(rank.recv(1 << 16))
            return answers

    *failures, status = (decode(answer).message for answer in served(tmp_path, work))
    reasons = [failure.reason for failure in failures if isinstance(failure, Failure)]
    assert len(reasons) == 4
    for reason, named in zip(reasons, ("'dance'", "hello.rank", "", "'verdict_changed'"), strict=True):
        assert named in reason
    assert isinstance(status, StatusAnswer) and status.run_id == RUN_ID.hex()


def test_a_run_without_a_provider_goes_through_every_message(tmp_path: Path) -> None:
    def work(path: str) -> tuple[HelloAnswer, HelloAnswer, CheckAnswer, StatusAnswer]:
        first, second = SidecarLink(path, 5.0), SidecarLink(path, 5.0)
        hellos = [
            link.ask(Hello(rank, 2, may_dry_run=True), HelloAnswer, 5.0) for rank, link in enumerate((first, second))
        ]
        checked = first.ask(Check(pending="no dry run"), CheckAnswer, 5.0)
        first.send(RunStarted("python train.py"))
        assert first.ask(Launch(2), LaunchAnswer, 5.0) == LaunchAnswer(RUN_ID.hex())
        for rank, link in enumerate((first, second)):
            assert link.send(Steps(rank, [1000] * 10, 1 << 20))
        second.ask(End(EndState.OK), Ended, 5.0)
        status = first.ask(Status(), StatusAnswer, 5.0)
        first.ask(End(EndState.OK), Ended, 5.0)
        first.close()
        second.close()
        return hellos[0], hellos[1], checked, status

    first, second, checked, status = served(tmp_path, work)
    assert first.dry_run_needed and not second.dry_run_needed, "one rank of a node has to dry-run the job"
    assert checked.verdict["status"] == VerdictStatus.UNKNOWN and "PHAROAH_ENDPOINT" in checked.verdict["reason"]
    assert 0 in status.ranks and not status.connected
    [record] = (tmp_path / "state").rglob(f"{RUN_ID.hex()}*")
    assert '"ok"' in record.read_text()


def test_a_listener_gets_the_verdict_at_once(tmp_path: Path) -> None:
    def work(path: str) -> VerdictChanged:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.settimeout(5)
            listener.connect(path)
            listener.send(b'{"verb":"listen","rank":0}')
            message = decode(listener.recv(1 << 16)).message
            assert isinstance(message, VerdictChanged)
            return message

    assert served(tmp_path, work).verdict["status"] == VerdictStatus.PENDING
