"""What the exchange keeps in the home of a user, and homes that do not answer."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pharoah._errors import UnknownReason
from pharoah._settings import Settings
from pharoah.sidecar import log_client
from pharoah.sidecar.evidence import exchange_folder
from pharoah.sidecar.exchange_client import ExchangeClient
from pharoah.sidecar.file_work import FileWork
from pharoah.sidecar.log_client import LogClient
from pharoah.sidecar.provider_connection import ProviderConnection
from pharoah_protocol.v1 import GetEpochRequest
from pharoah_system.trusted_paths import own_content
from tests.harness.exchange import ask, on_loopback
from tests.harness.loopback import Loopback


@contextmanager
def silent(file: Path) -> Iterator[None]:
    """Who reads this file waits for a writer, as for a server of files that is away."""
    file.unlink(missing_ok=True)
    os.mkfifo(file)
    try:
        yield
    finally:
        os.close(os.open(file, os.O_RDWR))


def folder_of(settings: Settings) -> Path:
    folder = exchange_folder(settings)
    assert folder is not None
    return folder


def test_a_machine_remembers_the_log_and_reads_only_what_is_new(tmp_path: Path) -> None:
    async def work(site: Loopback) -> None:
        settings = site.settings()
        await ask(settings)
        provider = ProviderConnection(settings)
        assert LogClient(provider.key, [], folder_of(settings)).size == 2, "a head and a key of names"
        served = await ExchangeClient(provider, settings).epoch()
        assert served.head.epoch == 1
        answer = await site.call("Exchange", "GetEpoch", GetEpochRequest(log_size=2))
        assert not answer.entries

    on_loopback(tmp_path, work)


def test_the_sidecar_goes_on_while_the_remembered_log_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = threading.Event()

    def silent_content(path: Path) -> bytes:
        answers.wait(30)
        return own_content(path)

    async def work(site: Loopback) -> None:
        settings = site.settings(timeout_seconds=0.5)
        await ask(site.settings())
        monkeypatch.setattr(log_client, "own_content", silent_content)
        asking = asyncio.create_task(ask(settings))
        await asyncio.sleep(0)
        assert not asking.done()  # and not waited for in this thread
        with pytest.raises(UnknownReason, match="the file system does not answer within"):
            await asking
        answers.set()

    on_loopback(tmp_path, work)


def test_a_memory_of_the_log_that_is_no_file_is_said_at_once(tmp_path: Path) -> None:
    async def work(site: Loopback) -> None:
        await ask(site.settings())
        (remembered,) = folder_of(site.settings()).glob("*.json")
        with silent(remembered), pytest.raises(UnknownReason, match="is not a regular file: remove it"):
            await ask(site.settings())

    on_loopback(tmp_path, work)


def test_a_table_that_does_not_answer_is_downloaded_again(tmp_path: Path) -> None:
    async def work(site: Loopback) -> None:
        settings = site.settings(timeout_seconds=2.0)
        before = await ask(settings)
        table = sorted(folder_of(settings).rglob("*.rows"))[0]
        with silent(table):
            assert (await ask(settings)).matches == before.matches

    on_loopback(tmp_path, work)


def test_works_on_files_are_done_one_after_the_other(tmp_path: Path) -> None:
    going, done, busy = threading.Event(), list[str](), list[str]()

    def slow() -> None:
        going.wait(30)
        done.append("first")

    async def inside() -> None:
        files = FileWork(30.0)
        first = asyncio.create_task(files.result(slow))
        await asyncio.sleep(0)
        files.begin(lambda: done.append("left out"))
        second = asyncio.create_task(files.result(lambda: at_once("second")))
        third = asyncio.create_task(files.result(lambda: at_once("third")))
        await asyncio.sleep(0)
        going.set()
        await asyncio.gather(first, second, third)

    def at_once(name: str) -> None:
        assert not busy
        busy.append(name)
        time.sleep(0.01)
        done.append(name)
        busy.remove(name)

    asyncio.run(inside())
    assert done == ["first", "second", "third"]


def test_files_that_do_not_answer_are_not_waited_for_twice() -> None:
    going = threading.Event()

    async def inside() -> None:
        files = FileWork(0.2)
        with pytest.raises(TimeoutError):
            await files.result(lambda: going.wait(30))
        files.seconds, began = 30.0, time.monotonic()
        with pytest.raises(TimeoutError):
            await files.result(lambda: None)
        assert time.monotonic() - began < 10.0
        going.set()

    asyncio.run(inside())


def test_an_error_of_earlier_work_is_no_error_of_the_next() -> None:
    going = threading.Event()

    def fails() -> None:
        going.wait(30)
        raise ValueError("of the first")

    async def inside() -> None:
        files = FileWork(30.0)
        first = asyncio.create_task(files.result(fails))
        await asyncio.sleep(0)
        second = asyncio.create_task(files.result(lambda: 7))
        await asyncio.sleep(0)
        going.set()
        with pytest.raises(ValueError, match="of the first"):
            await first
        assert await second == 7

    asyncio.run(inside())
