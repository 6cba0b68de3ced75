"""Certificates of another role, or of nobody any more; and the bounds of what a provider stores at a tenant."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from pharoah._errors import UnknownReason
from pharoah.sidecar import table_cache
from pharoah.sidecar.bounded_folder import Bound
from pharoah.sidecar.evidence import Evidence
from pharoah.sidecar.file_work import FileWork
from pharoah.sidecar.log_client import LogClient, ServedEpoch, VerificationError
from pharoah.sidecar.message_times import MessageTimes
from pharoah.sidecar.provider_connection import ProviderConnection
from pharoah_protocol.channels import Access, AccessFiles, ServerRole
from pharoah_protocol.log.checkpoint import Checkpoint, log_origin, sign
from pharoah_protocol.log.merkle import root
from pharoah_protocol.log.view import Entry, View
from pharoah_protocol.rpc import Stub
from pharoah_protocol.tables import epoch_head
from pharoah_protocol.tables.epoch_head import ClassTable, EpochHead
from pharoah_protocol.tables.misbehaviour import prove
from pharoah_protocol.tables.rows import split
from pharoah_protocol.v1 import GetEpochRequest, WatchAlertsRequest
from pharoah_provider import cli
from pharoah_provider.certificates import Authority
from pharoah_serving import call_guard
from pharoah_serving.errors import ProviderError
from pharoah_serving.listener import Tls
from pharoah_serving.peer_certificates import PeerCertificates
from tests.harness.exchange import RELEASE, ask, refused
from tests.harness.loopback import Loopback, loopback
from tests.harness.runs import join
from tests.harness.until import until

DOMAIN = "corp.example"
HERE = ("127.0.0.1",)


@asynccontextmanager
async def under_tls(folder: Path, server: str = "provider", **changes: Any) -> AsyncIterator[Loopback]:
    """A provider that shows the certificate of `server`."""
    pki = folder / "pki"
    authority = Authority(pki, DOMAIN)
    for name in ("provider", "auditor", "tenant/acme", "agent/n1", "operator/ops"):
        authority.issue(name, HERE)
    tls = Tls(pki / f"{server}.pem", pki / f"{server}.key", pki / "ca.pem")
    async with loopback(folder, RELEASE, tls=tls, domain=DOMAIN, **changes) as site:
        yield site


def files(pki: Path, name: str, **changes: Any) -> AccessFiles:
    return AccessFiles(ca=pki / "ca.pem", certificate=pki / f"{name}.pem", key=pki / f"{name}.key", **changes)


def tenant(site: Loopback) -> Any:
    pki = site.folder / "pki"
    return site.settings(
        token_file="",
        ca_file=str(pki / "ca.pem"),
        certificate_file=str(pki / "tenant-acme.pem"),
        certificate_key_file=str(pki / "tenant-acme.key"),
    )


@pytest.mark.parametrize("server", ["auditor", "tenant-acme", "agent-n1", "operator-ops"])
def test_no_other_certificate_of_the_authority_serves_as_the_providers(tmp_path: Path, server: str) -> None:
    async def inside() -> None:
        async with under_tls(tmp_path, server) as site:
            with pytest.raises(UnknownReason, match="cannot be reached, or does not accept our certificate"):
                await ask(tenant(site))
            for caller in ("agent-n1", "operator-ops"):
                access = Access.from_files(site.endpoint, files(tmp_path / "pki", caller))
                async with access.aio_channel() as channel:
                    code, _ = await refused(Stub(channel, "Exchange").GetEpoch(GetEpochRequest(), timeout=2))
                assert code is grpc.StatusCode.UNAVAILABLE

    asyncio.run(inside())


def test_the_providers_certificate_serves_as_no_auditors(tmp_path: Path) -> None:
    async def inside() -> None:
        async with under_tls(tmp_path) as site:
            assert (await ask(tenant(site))).matches
            other = ProviderConnection(tenant(site), ServerRole.AUDITOR)
            code, _ = await refused(Stub(other.channel, "Exchange").GetEpoch(GetEpochRequest(), timeout=2))
            await other.channel.close(None)
            assert code is grpc.StatusCode.UNAVAILABLE

    asyncio.run(inside())


def test_a_denied_certificate_ends_calls_and_open_streams_without_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def deny(pki: Path) -> None:
        assert cli.main(["certificate", "tenant/acme", "--deny", "--folder", str(pki), "--domain", DOMAIN]) == 0

    asyncio.run(ends(tmp_path, monkeypatch, deny))


def test_an_authority_that_left_the_bundle_ends_calls_and_open_streams(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def leave(pki: Path) -> None:
        Authority(tmp_path / "other", DOMAIN)
        (pki / "ca.pem").write_bytes((tmp_path / "other" / "ca.pem").read_bytes())

    asyncio.run(ends(tmp_path, monkeypatch, leave))


async def ends(folder: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Path], None]) -> None:
    """A connection with an open stream works before `change`, and neither a call nor the stream goes on after it."""
    monkeypatch.setattr(call_guard, "RECHECK_SECONDS", 0.05)
    denied = folder / "pki" / "denied"
    denied.parent.mkdir()
    denied.write_text("# nobody yet\n")
    async with under_tls(folder, deny_list=denied) as site:
        connection = ProviderConnection(tenant(site))
        site.channel = connection.channel
        try:
            stream = Stub(connection.channel, "Runs").WatchAlerts(WatchAlertsRequest(run_id=await join(site)))
            reading = asyncio.ensure_future(stream.read())
            await Stub(connection.channel, "Exchange").GetEpoch(GetEpochRequest(), timeout=5)
            change(folder / "pki")
            code, _ = await refused(Stub(connection.channel, "Exchange").GetEpoch(GetEpochRequest(), timeout=5))
            assert code is grpc.StatusCode.UNAUTHENTICATED
            await until(reading.done, "the stream to end")
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                reading.result()
            assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
        finally:
            await connection.channel.close(None)


def test_a_deny_list_with_a_mistake_keeps_what_was_denied(tmp_path: Path) -> None:
    authority = Authority(tmp_path, DOMAIN)
    first = authority.issue("tenant/acme").certificate.read_bytes()
    again = authority.issue("tenant/acme").certificate.read_bytes()
    assert authority.deny("tenant/acme") == 2, "the renewed one and the one before it"
    peers = PeerCertificates(tmp_path / "ca.pem", tmp_path / "denied")
    stranger = authority.issue("tenant/rival").certificate.read_bytes()
    assert [peers.accepts(pem) for pem in (first, again, stranger, b"no certificate")] == [False, False, True, False]
    (tmp_path / "denied").write_text("not a number\n")
    assert not peers.accepts(first)
    (tmp_path / "denied").write_text("")
    assert peers.accepts(first)
    (tmp_path / "denied").write_text("xyz\n")
    with pytest.raises(ProviderError, match="denied:1: expected a serial number"):
        PeerCertificates(tmp_path / "ca.pem", tmp_path / "denied")


def test_no_two_names_share_their_files(tmp_path: Path) -> None:
    authority = Authority(tmp_path, DOMAIN)
    names = (
        "tenant/a/b-c",
        "tenant/a-b/c",
        "tenant/a-b-c",
        "tenant/a/b/c",
        "tenant/a--b/c",
        "tenant/a-/b",
        "agent/a-b",
    )
    issued = [authority.issue(name) for name in names]
    assert len({file for pair in issued for file in pair}) == 2 * len(names)
    assert issued[0].certificate.name == "tenant-a-b--c.pem"


# ---- what a provider can store ------------------------------------------------------------------------------------


def test_at_most_four_tables_are_kept_and_the_size_is_checked_before_a_download(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_cache, "TABLES", Bound(most_files=4, most_bytes=10 * 64))
    downloads: list[int] = []

    async def stream(self: Any, epoch: int, expected: ClassTable, begun: bytes, _: MessageTimes) -> tuple[bytes, bytes]:
        downloads.append(epoch)
        return content_of(epoch, expected.rows), b""

    monkeypatch.setattr(table_cache.TableCache, "_stream", stream)

    async def work(site: Loopback) -> None:
        provider = ProviderConnection(site.settings())
        cache = table_cache.TableCache(provider, tmp_path / "cache", FileWork(30.0))
        for epoch, rows in enumerate((1, 2, 3, 4, 5, 1, 1, 1), 1):
            await cache.rows(served(epoch, rows), bytes(16), MessageTimes())
            kept = list((tmp_path / "cache").rglob("*.rows*"))
            assert len(kept) <= 4 and sum(path.stat().st_size for path in kept) <= 10 * 64 and len(cache._held) <= 4
        assert any(path.name.startswith("8-") for path in kept), "the newest one is kept"
        before = len(downloads)
        with pytest.raises(VerificationError, match="rows, at most"):
            await cache.rows(served(9, 1 << 40, content=b""), bytes(16), MessageTimes())
        assert len(downloads) == before
        await provider.channel.close(None)

    async def inside() -> None:
        async with loopback(tmp_path, RELEASE) as site:
            await work(site)

    asyncio.run(inside())


def content_of(epoch: int, rows: int) -> bytes:
    return b"".join(bytes([epoch, number % 256]) + bytes(62) for number in range(rows))


def served(epoch: int, rows: int, content: bytes | None = None) -> ServedEpoch:
    held = content_of(epoch, rows) if content is None else content
    table = ClassTable(bytes(16), bytes(32), rows, root(split(held)))
    return ServedEpoch(EpochHead(epoch, 1, 0, 1, (table,)), b"", b"", b"", b"", frozenset())


def test_kept_evidence_and_answers_are_bounded_in_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pharoah.sidecar.evidence.ANSWERS_BYTES", 5_000)
    monkeypatch.setattr("pharoah.sidecar.evidence.MISBEHAVIOURS", Bound(most_files=3, most_bytes=9_000))
    from pharoah._settings import Settings

    (tmp_path / "provider.pub").write_text(Ed25519PrivateKey.generate().public_key().public_bytes_raw().hex())
    kept = Evidence(Settings(state_folder=str(tmp_path), provider_key_file=str(tmp_path / "provider.pub")))
    for number in range(9):
        kept.answer(f"{number:032x}", {"text": "x" * 1_000})
        os.utime(next(tmp_path.rglob(f"{number:032x}.json")), (number, number))
        kept.misbehaviour({"kind": f"two logs {number}", "text": "x" * 4_000})
    answers, proofs = list(tmp_path.rglob("answers/*.json")), list(tmp_path.rglob("misbehaviours/*.json"))
    assert {path.name for path in answers} == {f"{number:032x}.json" for number in range(5, 9)}
    assert len(proofs) == 2 and sum(path.stat().st_size for path in proofs) <= 9_000
    assert kept.misbehaviour({"kind": "two logs", "text": "x" * 10_000}) is None


def test_two_jobs_that_are_shown_two_logs_of_different_lengths_prove_it(tmp_path: Path) -> None:
    key = Ed25519PrivateKey.generate()
    public = key.public_key().public_bytes_raw()
    jobs = [LogClient(key.public_key(), (), tmp_path) for _ in range(2)]

    def shown(job: LogClient, *bodies: bytes) -> None:
        entries = [Entry.from_body(b"head", number, body).encode() for number, body in enumerate(bodies, 1)]
        view = View().read(entries)
        note = sign(Checkpoint(log_origin(public), view.frontier.size, view.frontier.root), key)
        assert job.follow(entries, note.encode())
        job.verify(bodies[-1], epoch_head.sign(bodies[-1], key), b"", 1e9)

    def head(epoch: int, release: int) -> bytes:
        return EpochHead(epoch, release, 10**9, 10**9 + 3600, ()).encode()

    shown(jobs[0], head(1, 1), head(2, 1))
    with pytest.raises(VerificationError, match="two logs") as caught:
        shown(jobs[1], head(1, 2), head(2, 2), head(3, 2))
    evidence = json.loads(json.dumps(caught.value.evidence))
    assert "signed a log of 2 entries and one of 3 that does not continue it" in prove(evidence, public)
    assert LogClient(key.public_key(), (), tmp_path).size == 2, "what was remembered stays"
    honest = [LogClient(key.public_key(), (), tmp_path / "honest") for _ in range(2)]
    shown(honest[0], head(1, 1), head(2, 1), head(3, 1))
    shown(honest[1], head(1, 1), head(2, 1))
    assert LogClient(key.public_key(), (), tmp_path / "honest").size == 3, "the larger view is kept"


def test_a_log_that_others_write_at_this_moment_is_read_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many nodes that share a home start at once."""
    key = Ed25519PrivateKey.generate()
    public = key.public_key().public_bytes_raw()
    body = EpochHead(1, 1, 10**9, 10**9 + 3600, ()).encode()
    entries = [Entry.from_body(b"head", 1, body).encode()]
    view = View().read(entries)
    note = sign(Checkpoint(log_origin(public), view.frontier.size, view.frontier.root), key).encode()

    def shown(job: LogClient) -> LogClient:
        assert job.follow(entries[job.size :], note)
        job.verify(body, epoch_head.sign(body, key), b"", 1e9)
        return job

    assert shown(LogClient(key.public_key(), (), tmp_path)).remembers
    monkeypatch.setattr("pharoah.sidecar.log_client.LOCK_ATTEMPTS", 1)
    with (tmp_path / f"{log_origin(public)}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        job = LogClient(key.public_key(), (), tmp_path)
        assert job.size == 1 and not shown(job).remembers
    assert shown(job).remembers


def test_an_honest_log_proves_nothing_whatever_is_put_together_of_it(tmp_path: Path) -> None:
    key = Ed25519PrivateKey.generate()
    public = key.public_key().public_bytes_raw()
    entries = [Entry.from_body(b"head", number, b"%d" % number).encode() for number in range(1, 8)]
    notes = [
        sign(Checkpoint(log_origin(public), size, View().read(entries[:size]).frontier.root), key).encode().decode()
        for size in range(8)
    ]
    evidence = {"kind": "forked log", "begun_size": 0, "begun_subtrees": [], "entries": [e.hex() for e in entries]}
    for smaller in range(1, 7):
        with pytest.raises(ValueError, match="continues the smaller one"):
            prove({**evidence, "checkpoints": [notes[smaller], notes[7]]}, public)
    wrong = [entries[0], *entries[:6]]
    with pytest.raises(ValueError, match="not those of the larger"):
        prove({**evidence, "checkpoints": [notes[3], notes[7]], "entries": [e.hex() for e in wrong]}, public)
    with pytest.raises(ValueError, match="do not lead"):
        prove({**evidence, "checkpoints": [notes[3], notes[6]]}, public)
