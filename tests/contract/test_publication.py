"""Epochs over their life: rotated, revoked, lost; and what tenants, who remember earlier answers, conclude."""

from __future__ import annotations

import asyncio
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest

from pharoah._errors import UnknownReason
from pharoah.sidecar.exchange_answers import Answer
from pharoah.sidecar.exchange_client import ExchangeClient
from pharoah.sidecar.log_client import VerificationError
from pharoah.sidecar.provider_connection import ProviderConnection
from pharoah.sidecar.verdict_rules import verdict_from_rows
from pharoah_auditor.replay import replay
from pharoah_learning.release import Release
from pharoah_protocol.log.view import AUDIT, HEAD, Entry, LogError, View
from pharoah_protocol.rpc import Stub
from pharoah_protocol.v1 import (
    ExportAuditBundleRequest,
    ListRequest,
    ReinstateRequest,
    RevokeRequest,
    RollbackRequest,
)
from pharoah_protocol.vocabulary import Severity
from pharoah_provider.publication import AUDIT_RETENTION_SECONDS, Publisher
from pharoah_provider.storage.base import Storage
from pharoah_provider.storage.duckdb import DuckStorage
from pharoah_provider.transparency_log import TransparencyLog
from pharoah_serving.errors import Invalid, NotReady, Unknown
from pharoah_serving.keys import open_keys
from tests.harness.clock import SimulatedClock
from tests.harness.exchange import KNOWN, RELEASE, ROW, ask, on_loopback, refused
from tests.harness.loopback import Loopback, loopback, node, ticket
from tests.harness.publisher import forget_signatures, publisher_site, with_publisher
from tests.harness.until import until

DAY = 86_400


def test_an_epoch_is_rotated_after_a_day_and_the_one_before_is_still_served(tmp_path: Path) -> None:
    clock = SimulatedClock()

    async def work(publisher: Publisher, store: Storage) -> None:
        with pytest.raises(NotReady):
            publisher.epoch()
        await publisher.open()
        assert publisher.epoch().head.epoch == 1
        clock.forward(3600)
        await publisher.rotate()
        assert publisher.epoch().head.epoch == 1
        clock.forward(DAY)
        await publisher.rotate()
        assert publisher.epoch().head.epoch == 2 and publisher.epoch(1).head.epoch == 1
        await store.nodes.put_node(node("n2", "memory_limit=5"))
        await publisher.rotate()
        assert publisher.epoch().head.epoch == 3, "a new configuration gets a class"
        with pytest.raises(Unknown, match="over"):
            publisher.epoch(1)

    with_publisher(tmp_path, work, clock)


def test_a_restart_serves_the_same_epoch_again(tmp_path: Path) -> None:
    bodies = []

    async def work(publisher: Publisher, _: Storage) -> None:
        await publisher.open()
        bodies.append((publisher.epoch().body, publisher.log.view))

    for _ in range(2):
        with_publisher(tmp_path, work)
    assert bodies[0] == bodies[1]


def test_the_drill_for_a_lost_seed(tmp_path: Path) -> None:
    """The epoch cannot be served again; a new one is sealed, and nobody is shown two heads for one epoch."""

    async def first(publisher: Publisher, _: Storage) -> None:
        await publisher.open()

    async def second(publisher: Publisher, _: Storage) -> None:
        await publisher.open()
        assert publisher.epoch().head.epoch == 2
        with pytest.raises(Unknown):
            publisher.epoch(1)

    with_publisher(tmp_path, first)
    (tmp_path / "keys" / "epoch-1.seed").unlink()
    with_publisher(tmp_path, second)


def test_seeds_are_destroyed_when_no_audit_may_ask_for_them_any_more(tmp_path: Path) -> None:
    clock = SimulatedClock()

    async def work() -> None:
        async with publisher_site(tmp_path, clock) as site:

            async def after(seconds: float) -> None:
                clock.forward(seconds)
                site.guard.keep()
                await site.publisher.rotate()

            await site.publisher.open()
            await after(AUDIT_RETENTION_SECONDS - 60)
            await after(120)
            await after(DAY - 120)
            assert (tmp_path / "keys" / "epoch-1.seed").exists(), "it is looked at twice, a day apart"
            await after(240)
            assert not (tmp_path / "keys" / "epoch-1.seed").exists()
            assert await site.store.published.seeds_before(clock.now - DAY) == [2]

    asyncio.run(work())


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_crash_around_the_commit_leaves_one_log(tmp_path: Path, when: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Crash(Exception):
        pass

    async def crash(*_: Any) -> None:
        raise Crash

    async def dies(publisher: Publisher, store: Storage) -> None:
        monkeypatch.setattr(*((store.published, "put_epoch") if when == "before" else (publisher.log, "serve")), crash)
        with pytest.raises(Crash):
            await publisher.publish(RELEASE)

    async def goes_on(publisher: Publisher, _: Storage) -> None:
        await publisher.open()
        number = 2 if when == "before" else 1  # a number whose head may have been signed is not used again
        assert publisher.epoch().head.epoch == number
        entries = [Entry.decode(entry) for entry in publisher.log.entries(0)]
        assert [(entry.kind, entry.number) for entry in entries] == [(HEAD, number)]

    with_publisher(tmp_path, dies)
    with_publisher(tmp_path, goes_on)


def test_a_caller_that_goes_away_does_not_stop_a_publication(tmp_path: Path) -> None:
    async def work(publisher: Publisher, store: Storage) -> None:
        await publisher.open()
        asked = asyncio.create_task(publisher.publish(RELEASE))
        await asyncio.sleep(0)
        asked.cancel()
        await until(lambda: publisher.epoch().head.epoch != 1, "the epoch to be published")
        assert len(await store.log.log_entries()) == 2 == publisher.log.view.frontier.size

    with_publisher(tmp_path, work)


def test_rows_are_revoked_inside_the_epoch_also_over_a_restart(tmp_path: Path) -> None:
    async def revoke(publisher: Publisher, _: Storage) -> None:
        await publisher.open()
        with pytest.raises(Invalid, match="nothing"):
            await publisher.revoke(["nothing"])
        assert publisher.list_revoked() == b"" and await publisher.revoke([ROW.id]) == 1
        assert await publisher.revoke([ROW.id]) == 1

    async def remembers(publisher: Publisher, _: Storage) -> None:
        await publisher.open()
        (row,) = publisher.list_revoked_rows(1)
        assert publisher.epoch().head.epoch == 1 and len(row) == 32
        publisher.log.view.check(publisher.epoch().body, publisher.list_revoked())
        await publisher.publish(RELEASE)
        (again,) = publisher.list_revoked_rows(2)
        assert again != row and publisher.list_revoked_rows(1) == {row}, "a revoked row stays revoked"
        publisher.log.view.check(publisher.epoch().body, publisher.list_revoked())
        await publisher.publish(replace(RELEASE, release=2))
        (row,) = publisher.list_revoked_rows(3)
        assert await publisher.reinstate([ROW.id]) == 1 and publisher.list_revoked_rows(3) == {row}, (
            "from the next epoch on"
        )
        assert await publisher.revoke([ROW.id]) == 1, "or not, after all"
        await publisher.publish(replace(RELEASE, release=3))
        assert len(publisher.list_revoked_rows(4)) == 1 and await publisher.reinstate([ROW.id]) == 1
        with pytest.raises(Invalid, match="is not revoked"):
            await publisher.reinstate([ROW.id])
        await publisher.publish(replace(RELEASE, release=4))
        assert publisher.list_revoked() == b""

    with_publisher(tmp_path, revoke)
    with_publisher(tmp_path, remembers)


def test_a_second_request_to_witnesses_does_not_undo_what_happens_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest, asked, going = TransparencyLog._cosign, asyncio.Event(), asyncio.Event()
    clock = SimulatedClock()

    async def slow(self: TransparencyLog, note: Any) -> Any:
        asked.set()
        await going.wait()
        return await honest(self, note)

    async def work(publisher: Publisher, _: Storage) -> None:
        await publisher.open()
        monkeypatch.setattr(TransparencyLog, "_cosign", slow)
        clock.forward(3600)
        refreshing = asyncio.create_task(publisher.rotate())
        revoking = asyncio.create_task(publisher.revoke([ROW.id]))
        await asked.wait()
        going.set()
        await asyncio.gather(refreshing, revoking)
        assert publisher.log.view.frontier.size == 2
        publisher.log.view.check(publisher.epoch().body, publisher.list_revoked())
        await publisher.append(Entry(AUDIT, 5, bytes(32)))

    with_publisher(tmp_path, work, clock)


def test_a_head_is_never_shown_without_its_log_nor_the_log_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tenant that asks during a publication gets the state before it or after it, never a mixture."""
    clock = SimulatedClock()

    async def work(publisher: Publisher, store: Storage) -> None:
        await publisher.open()
        honest, looked = store.log.put_checkpoint, []

        async def look(note: bytes) -> None:
            publisher.log.view.check(publisher.epoch().body, publisher.list_revoked())
            looked.append(note)
            await honest(note)

        monkeypatch.setattr(store.log, "put_checkpoint", look)
        await publisher.revoke([ROW.id])
        await publisher.publish(RELEASE)
        clock.forward(DAY + 3600)
        await publisher.rotate()
        assert len(looked) == 4, "the last rotation has what was served cosigned again, and then the new epoch"

    with_publisher(tmp_path, work, clock)


def test_an_entry_that_no_honest_log_holds_is_never_committed(tmp_path: Path) -> None:
    async def work(publisher: Publisher, store: Storage) -> None:
        await publisher.open()
        for _ in range(2):
            with pytest.raises(LogError):
                await publisher.append(Entry(HEAD, 1, bytes(32)))
        assert len(await store.log.log_entries()) == 1

    with_publisher(tmp_path, work)


def test_days_of_the_audit_log_stand_in_the_log_once(tmp_path: Path) -> None:
    async def work(publisher: Publisher, store: Storage) -> None:
        await publisher.open()
        await publisher.append(Entry(AUDIT, 5, bytes(32)))
        assert 5 in publisher.log.view.days and View().read(await store.log.log_entries()) == publisher.log.view

    with_publisher(tmp_path, work)


async def verdict(exchange: ExchangeClient) -> str:
    return verdict_from_rows(await exchange.ask(KNOWN, ticket()), "").status


def test_a_revoked_row_is_gone_with_the_next_question_in_both_modes(tmp_path: Path) -> None:
    async def work(site: Loopback) -> None:
        exchanges = [
            ExchangeClient(ProviderConnection(s := site.settings(privacy=mode)), s) for mode in ("private", "hashed")
        ]
        assert [await verdict(exchange) for exchange in exchanges] == ["incompatible"] * 2
        await site.call("Operator", "Revoke", RevokeRequest(rows=[ROW.id]), "ops")
        assert [await verdict(exchange) for exchange in exchanges] == ["unknown"] * 2
        listed = await site.call("Operator", "List", ListRequest(listing="table"), "ops")
        assert {row["id"]: row["severity"] for row in map(json.loads, listed.rows)}[ROW.id] == "revoked"

    on_loopback(tmp_path, work)


def test_an_exported_audit_bundle_replays(tmp_path: Path) -> None:
    """From the service to the auditor's file: the only test in which both ends are the real ones."""

    async def work(site: Loopback) -> None:
        answer = await site.call("Operator", "ExportAuditBundle", ExportAuditBundleRequest(epoch=1), "ops")
        (tmp_path / "bundle.json").write_text(answer.content)
        with pytest.raises(Exception, match="epoch 2 was not sealed here"):
            await site.call("Operator", "ExportAuditBundle", ExportAuditBundleRequest(epoch=2), "ops")

    on_loopback(tmp_path, work, RELEASE)
    findings = replay(tmp_path / "bundle.json", open_keys(tmp_path / "keys").public)
    by_text = {finding.what: finding.holds for finding in findings}
    assert by_text["the head is signed by this key"]
    assert any("seal to the roots" in what and holds for what, holds in by_text.items())


def test_a_reinstated_row_holds_again_with_the_next_epoch(tmp_path: Path) -> None:
    async def work(site: Loopback) -> None:
        code, message = await refused(site.call("Operator", "Reinstate", ReinstateRequest(rows=[ROW.id]), "ops"))
        assert code is grpc.StatusCode.INVALID_ARGUMENT and "is not revoked" in message
        await site.call("Operator", "Revoke", RevokeRequest(rows=[ROW.id]), "ops")
        answer = await site.call("Operator", "Reinstate", ReinstateRequest(rows=[ROW.id]), "ops")
        assert answer.reinstated == 1

    on_loopback(tmp_path, work, RELEASE)


def test_a_release_is_rolled_back_and_stays_so_over_a_restart(tmp_path: Path) -> None:
    async def inside() -> None:
        async with loopback(tmp_path, RELEASE):
            pass
        store = DuckStorage(tmp_path / "p.duckdb")
        await store.published.put_release(Release(2, ()))
        store.close()
        async with loopback(tmp_path) as site:
            assert (await ask(site.settings())).served.head.release == 2
            answer = await site.call("Operator", "Rollback", RollbackRequest(), "ops")
            assert (answer.release, answer.epoch) == (1, 3)
            assert verdict_from_rows(await ask(site.settings()), "").status == "incompatible"
            with pytest.raises(Exception, match="only one"):
                await site.call("Operator", "Rollback", RollbackRequest(), "ops")
        async with loopback(tmp_path) as site:
            assert (await ask(site.settings())).served.head.release == 1

    asyncio.run(inside())


def test_a_provider_that_starts_its_log_anew_is_rejected(tmp_path: Path) -> None:
    """The same key with another history: what a provider does that shows tenants different logs."""

    async def inside() -> None:
        async with loopback(tmp_path, RELEASE) as site:
            await ask(site.settings())
        (tmp_path / "p.duckdb").unlink()
        forget_signatures(tmp_path / "keys")
        store = DuckStorage(tmp_path / "p.duckdb")
        await store.nodes.put_node(node("n1"))
        await store.published.put_release(Release(1, (replace(ROW, severity=Severity.OK),)))
        store.close()
        async with loopback(tmp_path) as site:
            with pytest.raises(VerificationError, match="not the one this machine has seen") as caught:
                await ask(site.settings())
            assert caught.value.evidence and len(caught.value.evidence["checkpoints"]) == 2

    asyncio.run(inside())


def test_two_jobs_of_one_machine_are_not_shown_two_logs(tmp_path: Path) -> None:
    """Both began before either had kept anything."""

    async def inside() -> None:
        async with loopback(tmp_path, RELEASE) as site:
            settings = site.settings()
            late = ExchangeClient(ProviderConnection(settings), settings)
            await late._remember()
            await ask(settings)
        (tmp_path / "p.duckdb").rename(tmp_path / "first.duckdb")
        forget_signatures(tmp_path / "keys")
        store = DuckStorage(tmp_path / "p.duckdb")
        await store.nodes.put_node(node("n1"))
        await store.published.put_release(Release(1, ()))
        store.close()
        async with loopback(tmp_path) as site:
            late._provider = ProviderConnection(site.settings())
            late._stub = Stub(late._provider.channel, "Exchange")
            with pytest.raises(VerificationError, match="two logs"):
                await late.epoch()

    asyncio.run(inside())


def test_a_disk_without_locks_costs_the_memory_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_locks(*_: Any) -> None:
        raise OSError(38, "Function not implemented")

    async def work(site: Loopback) -> None:
        monkeypatch.setattr("fcntl.flock", no_locks)  # the tenant's disk; the provider has its locks
        assert (await ask(site.settings())).matches

    on_loopback(tmp_path, work)


def test_a_memory_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    async def work(site: Loopback) -> None:
        settings = site.settings()
        await ask(settings)
        (file,) = Path(settings.state_folder).glob("exchange/*/pharoah-log-*.json")
        file.write_text("{}")
        with pytest.raises(UnknownReason, match=str(file)):
            await ask(settings)

    on_loopback(tmp_path, work)


def test_tables_are_kept_resumed_and_checked(tmp_path: Path) -> None:
    async def work(site: Loopback) -> None:
        settings = site.settings()
        first = await ask(settings)
        folder = next(Path(settings.state_folder).glob("exchange/*/pharoah-log-*/"))
        files = sorted(folder.glob("*.rows"))
        assert len(files) == 2
        whole = files[0].read_bytes()
        for content, suffix in ((whole[:-64], ".rows"), (b"x" * len(whole), ".rows"), (whole[: 64 * 5 + 7], ".part")):
            files[0].unlink(missing_ok=True)
            target = files[0] if suffix == ".rows" else files[0].with_name(files[0].name + ".part")
            target.write_bytes(content)
            again: Answer = await ask(settings)
            assert again.matches == first.matches and files[0].read_bytes() == whole
        files[0].unlink()
        files[0].with_name(files[0].name + ".part").write_bytes(b"x" * 128)
        assert (await ask(settings)).matches == first.matches, "a beginning that was at fault is not kept"

    on_loopback(tmp_path, work)


def test_who_keeps_no_runs_still_remembers_the_providers_log(tmp_path: Path) -> None:
    async def work(site: Loopback) -> None:
        settings = site.settings(keep_runs=0)
        await ask(settings)
        (memory,) = Path(settings.state_folder).glob("exchange/*/pharoah-log-*.json")
        assert not list(memory.parent.glob("answers/*"))
        shutil.rmtree(settings.state_folder, ignore_errors=True)
        Path(settings.state_folder).write_text("a file where the folder should be")
        assert (await ask(site.settings())).matches

    on_loopback(tmp_path, work)


def test_the_table_lists_ids_that_can_be_revoked(tmp_path: Path) -> None:
    async def work(site: Loopback) -> None:
        listed = await site.call("Operator", "List", ListRequest(listing="table"), "ops")
        assert ROW.id in listed.rows[0]

    on_loopback(tmp_path, work)
