"""A sidecar on its real socket: wrong messages end nothing but themselves, and the last connection ends the sidecar."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar, cast

import pytest

from pharoah import _guard, _session
from pharoah._listener import Listener
from pharoah._session import Session
from pharoah._settings import Settings
from pharoah._sidecar_link import SidecarLink
from pharoah._verdict import unknown
from pharoah.sidecar.server import ConnectionServer
from pharoah.sidecar.sidecar import Sidecar
from pharoah_protocol.local_messages import Message, decode
from pharoah_protocol.rank_messages import (
    AlertRaised,
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


def served(folder: Path, work: Callable[[str], T], job_begins: Callable[[], None] = lambda: None) -> T:
    """What `work`, in a thread, gives for the path of a running sidecar; the sidecar has ended by then."""

    async def inside() -> T:
        path = folder / "sidecar.sock"
        settings = Settings(state_folder=str(folder / "state"), shutdown_timeout_seconds=1.0)
        serving = asyncio.create_task(Sidecar(path, settings, RUN_ID, job_begins=job_begins).serve())
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


@pytest.mark.parametrize(
    "first", [RunStarted("python train.py"), Launch(1), Hello(0, 1)], ids=lambda one: type(one).__name__
)
def test_the_job_begins_with_what_says_so_and_not_with_its_check(tmp_path: Path, first: Message) -> None:
    """Its dry run is over then, so the sidecar may look at how much memory is left."""
    begun = threading.Event()

    def work(path: str) -> tuple[bool, bool]:
        with contextlib.closing(SidecarLink(path, 5.0)) as link:
            link.ask(Check(pending="no dry run"), CheckAnswer, 5.0)
            before = begun.is_set()
            link.send(first)
            link.ask(End(EndState.OK), Ended, 5.0)
            return before, begun.is_set()

    assert served(tmp_path, work, begun.set) == (False, True)


def test_a_state_folder_that_others_can_change_is_said_and_not_used(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    state.chmod(0o777)

    def work(path: str) -> list[str]:
        with contextlib.closing(SidecarLink(path, 5.0)) as link:
            link.ask(Check(pending="no dry run"), CheckAnswer, 5.0)
            link.send(RunStarted("python train.py"))
            while not (found := link.ask(Hello(0, 1), HelloAnswer, 5.0).verdict["findings"]):
                time.sleep(0.01)
            link.ask(End(EndState.OK), Ended, 5.0)
            return [f"{finding['code']} {finding['what']}" for finding in found]

    (said,) = served(tmp_path, work)
    assert said.startswith("nothing-remembered") and f"chmod go-w {state}" in said
    assert list(state.iterdir()) == []


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


NEXT_RANK = """
import sys
from pharoah._sidecar_link import SidecarLink
from pharoah_protocol.rank_messages import Hello, HelloAnswer, Status, StatusAnswer, Steps
link = SidecarLink(sys.argv[1], 5.0)
link.ask(Hello(0), HelloAnswer, 5.0)
link.send(Steps(0, [1000] * 10, 1 << 20))
link.ask(Status(), StatusAnswer, 5.0)
"""


def test_the_error_of_a_rank_that_was_started_again_does_not_decide_about_the_end(tmp_path: Path) -> None:
    def work(path: str) -> None:
        launcher = SidecarLink(path, 5.0)
        launcher.send(RunStarted("torchrun --max-restarts 3 train.py"))
        launcher.ask(End(EndState.FAILED, last=False, error="KeyError: 'x'"), Ended, 5.0)
        subprocess.run([sys.executable, "-c", NEXT_RANK, path], check=True)
        launcher.ask(End(EndState.FAILED, last=True, status=1, asked_at=time.time()), Ended, 5.0)
        launcher.close()

    served(tmp_path, work)
    [record] = (tmp_path / "state").rglob(f"{RUN_ID.hex()}*")
    assert '"cancelled"' in record.read_text()


RANK = """
import sys, time
from pharoah._sidecar_link import SidecarLink
from pharoah._verdict import unknown
from pharoah_protocol.rank_messages import Hello, HelloAnswer
link = SidecarLink(sys.argv[1], 5.0)
link.ask(Hello(0, 1, may_dry_run=False), HelloAnswer, 5.0)
print("connected", flush=True)
time.sleep(600)
"""


def test_who_listens_late_hears_what_holds_and_once_again_what_is_over(tmp_path: Path) -> None:
    """A training loop that asks at the end of an epoch must learn of the alert that was raised meanwhile."""

    def heard(listener: socket.socket) -> AlertRaised:
        while True:
            message = decode(listener.recv(1 << 16)).message
            if isinstance(message, AlertRaised):
                return message

    def listening(path: str) -> socket.socket:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        listener.settimeout(30)
        listener.connect(path)
        listener.send(b'{"verb":"listen","rank":0}')
        return listener

    def work(path: str) -> None:
        with subprocess.Popen([sys.executable, "-c", RANK, path], stdout=subprocess.PIPE) as rank:
            assert rank.stdout is not None
            try:
                assert rank.stdout.readline() == b"connected\n"
                with listening(path) as early:
                    rank.send_signal(signal.SIGSTOP)
                    first = heard(early)
                    with listening(path) as late:
                        assert heard(late) == first
            finally:
                rank.kill()

    served(tmp_path, work)


def test_a_session_whose_sidecar_is_gone_tries_to_listen_once_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    tries, now = list[str](), [1000.0]

    def listener(path: str, rank: int) -> Listener:
        tries.append(path)
        return Listener(path, rank)

    link = cast(Any, SimpleNamespace(path="/nowhere/sidecar.sock", forget=lambda: None))
    session = Session(unknown("a test"), link)
    monkeypatch.setattr(_session, "Listener", listener)
    monkeypatch.setattr(_session, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(_guard, "RAISE", False)
    for seconds in (0, 1, 59, 60, 61, 119, 120):
        now[0] = 1000.0 + seconds
        assert not session.should_checkpoint()
    assert len(tries) == 3


def test_a_rank_is_accepted_after_the_machine_had_no_descriptor_for_it(tmp_path: Path) -> None:
    async def inside() -> list[Any]:
        loop = asyncio.get_running_loop()
        accept, refused = loop.sock_accept, [OSError(24, "Too many open files")]

        def accept_later(server: socket.socket) -> Any:
            if refused:
                raise refused.pop()
            return accept(server)

        loop.sock_accept = accept_later  # type: ignore[method-assign]
        server = ConnectionServer(tmp_path / "s", {Status: lambda *_: answered()})
        serving = asyncio.create_task(server.serve())
        while not (tmp_path / "s").exists():
            await asyncio.sleep(0.01)
        answer = await asyncio.to_thread(ask)
        await serving
        return [answer, refused]

    async def answered() -> Message:
        return Ended()

    def ask() -> Message:
        with contextlib.closing(SidecarLink(str(tmp_path / "s"), 10)) as link:
            return link.ask(Status(), Ended, 10)

    assert asyncio.run(inside()) == [Ended(), []]


def test_who_asks_for_the_end_of_a_run_that_ends_already_waits_for_all_of_it(tmp_path: Path) -> None:
    """The connection that has asked first may be closed meanwhile, as when a job that was asked to end takes long."""

    async def inside() -> list[str]:
        settings, done = Settings(state_folder=str(tmp_path / "state")), list[str]()
        sidecar = Sidecar(tmp_path / "sidecar.sock", settings, RUN_ID)
        going = asyncio.Event()

        async def report_end() -> None:
            await going.wait()
            done.append("reported")

        sidecar._report_end = report_end  # type: ignore[method-assign]
        first = asyncio.create_task(sidecar._end_run())
        await asyncio.sleep(0)
        first.cancel()
        second = asyncio.create_task(sidecar._end_run())
        await asyncio.wait([first])
        going.set()
        await second
        return done

    assert asyncio.run(inside()) == ["reported"]
