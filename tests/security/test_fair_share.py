"""One caller at its worst keeps no other from the provider: who is served first, what is counted, what is closed."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from pharoah_protocol.rpc import Stub
from pharoah_protocol.v1 import EndRunRequest, GetEpochRequest, WatchAlertsRequest
from pharoah_protocol.vocabulary import Role
from pharoah_provider.domain import Run
from pharoah_provider.monitoring import intake
from pharoah_provider.monitoring import run_budgets as budgets
from pharoah_provider.monitoring.run_budgets import JoinBudgets, ReportBudgets
from pharoah_provider.storage.records import ReportedAmount
from pharoah_serving import admission, audit_log, connections, metrics_server, peers, recorder
from pharoah_serving.audit_log import AuditLog, AuditRecord
from pharoah_serving.connections import ConnectionWatch
from pharoah_serving.costs import Cost, charging, in_thread, metered
from pharoah_serving.errors import Exhausted, ProviderError
from pharoah_serving.metrics_server import MetricsAddress, serving_metrics
from pharoah_serving.peers import Peers
from pharoah_serving.principals import Principal
from pharoah_serving.recorder import CallRecorder
from pharoah_serving.turns import BURST_SECONDS, Turns, alone, give_way
from tests.harness.exchange import on_loopback, refused
from tests.harness.loopback import Loopback, bearer
from tests.harness.monitored import HandClock, monitored_site
from tests.harness.runs import join, report
from tests.harness.until import until

HEAVY, OTHER, LIGHT = (Principal(Role.TENANT, name) for name in ("heavy/a", "other/a", "light/a"))


class Site:
    """Turns under a clock that is set by hand; `begun` has the names of calls in the order in which they began."""

    def __init__(self) -> None:
        self.time, self.begun = HandClock(0.0), list[str]()
        self.turns = Turns(self.time.clock.steady)
        self._tasks: list[asyncio.Task[None]] = []

    def call(self, who: Principal, name: str, seconds: float) -> asyncio.Event:
        """A call that costs so much; it ends when the event is set."""
        end = asyncio.Event()

        async def work() -> None:
            cost = Cost()
            async with self.turns.turn(who, cost):
                self.begun.append(name)
                await end.wait()
                cost.add(seconds)

        self._tasks.append(asyncio.create_task(work()))
        return end

    async def after(self, seconds: float) -> None:
        """Time passes."""
        await asyncio.sleep(0)
        self.time.now += seconds
        self.turns.look()
        for _ in range(5):
            await asyncio.sleep(0)

    async def done(self) -> None:
        await asyncio.gather(*self._tasks)


def test_a_light_caller_comes_before_the_backlog_of_a_heavy_one() -> None:
    async def work() -> None:
        site = Site()
        first = site.call(HEAVY, "heavy", 2 * BURST_SECONDS)
        await site.after(0.0)
        first.set()
        await site.after(0.0)
        waiting = [site.call(HEAVY, f"heavy {number}", 0.01) for number in range(20)]
        await site.after(0.001)
        light = site.call(LIGHT, "light", 0.01)
        await site.after(0.0)
        assert site.begun == ["heavy", "heavy 0", "light"], "one call over budget was at work already"
        for end in (*waiting, light):
            end.set()
        while len(site.begun) < 22:  # then the backlog
            await site.after(1.0)
        await site.done()

    asyncio.run(work())


def test_callers_over_their_budget_leave_most_of_the_time_to_others_and_take_turns() -> None:
    async def work() -> None:
        site = Site()
        for who in (HEAVY, OTHER):
            site.call(who, "first", 9.0).set()
        await site.after(0.0)
        ends = [site.call(who, f"{who.name} {n}", 0.1) for n in range(2) for who in (HEAVY, OTHER)]
        for end in ends:
            end.set()
        begun = []
        for _ in range(60):
            before = len(site.begun)
            await site.after(0.05)
            begun.append(len(site.begun) - before)
        assert len(site.begun) == 6
        assert max(begun) == 1 and sum(begun[:20]) < 4, "0.1 s of work are followed by 0.3 s of rest"
        names = [name.partition(" ")[0] for name in site.begun[2:]]
        assert sorted(names[:2]) == ["heavy/a", "other/a"]
        await site.done()

    asyncio.run(work())


def test_calls_of_one_run_wait_for_each_other_without_a_turn() -> None:
    """Else two that wait would take both slots of their caller, and the one that works could not go on."""

    async def work() -> None:
        site, lock, ended = Site(), asyncio.Lock(), list[int]()

        async def call(number: int) -> None:
            async with site.turns.turn(HEAVY, Cost()), alone(lock):
                for _ in range(3):
                    site.turns.charge(HEAVY, BURST_SECONDS)
                    await give_way()
                ended.append(number)

        tasks = [asyncio.create_task(call(number)) for number in range(5)]
        while len(ended) < 5:
            await site.after(1.0)
        await asyncio.gather(*tasks)
        assert ended == sorted(ended)

    asyncio.run(work())


def test_a_call_that_is_given_up_while_it_waits_leaves_its_place() -> None:
    async def work() -> None:
        site = Site()
        held = [site.call(HEAVY, f"held {n}", 0.0) for n in range(2)]
        await site.after(0.0)
        lost = asyncio.create_task(site.turns.come_back(_turn_of(site.turns)))
        await site.after(0.0)
        lost.cancel()
        await asyncio.gather(lost, return_exceptions=True)
        next_one = site.call(HEAVY, "next", 0.0)
        for end in (*held, next_one):
            end.set()
        await site.after(0.0)
        await site.done()
        assert site.begun == ["held 0", "held 1", "next"]

    asyncio.run(work())


def _turn_of(turns: Turns) -> Any:
    from pharoah_serving.turns import Turn

    return Turn(turns, HEAVY, Cost())


def test_the_time_of_steps_and_threads_is_charged_and_waiting_is_not() -> None:
    def burn(seconds: float) -> None:
        until_seconds = time.thread_time() + seconds
        while time.thread_time() < until_seconds:
            pass

    async def busy() -> None:
        burn(0.02)
        await asyncio.sleep(0.5)
        await in_thread(burn, 0.03)

    async def work() -> None:
        cost = Cost()
        with charging(cost):
            await metered(busy())
        assert 0.05 <= cost.take() < 0.5 and cost.take() == 0.0

    asyncio.run(work())


# ---- strangers, and connections that give their calls up ------------------------------------------------------------


def test_a_connection_that_cancels_most_of_its_calls_is_refused_for_a_minute_and_closed() -> None:
    now = HandClock(0.0)
    conduct = Peers(now.clock.steady)
    for _ in range(peers.LEAST_CANCELLED):
        conduct.called("ipv4:1.2.3.4:5")
        conduct.gave_up("ipv4:1.2.3.4:5")
        conduct.called("ipv4:1.2.3.4:6")
    assert conduct.called("ipv4:1.2.3.4:5") and not conduct.called("ipv4:1.2.3.4:6")
    assert conduct.to_close == {"ipv4:1.2.3.4:5"}
    now.now += peers.PENALTY_SECONDS
    assert not conduct.called("ipv4:1.2.3.4:5")


def test_one_client_of_a_unix_socket_has_nobody_else_refused() -> None:
    """gRPC gives all of them one name."""
    conduct = Peers(HandClock(0.0).clock.steady)
    for _ in range(2 * peers.LEAST_CANCELLED):
        conduct.called("unix:")
        conduct.gave_up("unix:")
    assert not conduct.called("unix:") and not conduct.to_close


def test_a_client_that_cancels_now_and_then_is_served_on() -> None:
    conduct = Peers(HandClock(0.0).clock.steady)
    for _ in range(1000):
        assert not conduct.called("ipv4:1.2.3.4:5")
        assert not conduct.called("ipv4:1.2.3.4:5")
        conduct.gave_up("ipv4:1.2.3.4:5")


def test_the_schema_is_not_served_and_unknown_methods_are_answered(tmp_path: Path) -> None:
    async def work(site: Loopback) -> None:
        for path in ("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", "/no.such.Service/Method"):
            code, _ = await refused(site.channel.unary_unary(path)(b"", timeout=5, metadata=bearer("acme")))
            assert code is grpc.StatusCode.UNIMPLEMENTED

    on_loopback(tmp_path, work)


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def opened_and_cancelled(count: int, token: str) -> Iterator[bytes]:
    """HTTP/2 by hand: calls, each cancelled with the frame after it."""
    headers = {
        ":method": "POST", ":scheme": "http", ":path": "/pharoah.v1.Exchange/GetEpoch", ":authority": "p",
        "te": "trailers", "content-type": "application/grpc", "grpc-timeout": "5S", "authorization": token,
    }  # fmt: skip
    parts = [part.encode() for pair in headers.items() for part in pair]
    block = b"".join((b"" if at % 2 else b"\x00") + bytes([len(part)]) + part for at, part in enumerate(parts))
    yield b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, b"")
    for stream in range(1, 2 * count, 2):
        yield frame(1, 4, stream, block) + frame(3, 0, stream, (8).to_bytes(4, "big"))


@pytest.mark.usefixtures("plain_port")
@pytest.mark.parametrize("token", ["Bearer nobody", bearer("acme")[0][1]], ids=["stranger", "tenant"])
def test_calls_that_are_opened_and_cancelled_reach_the_provider_in_small_numbers(tmp_path: Path, token: str) -> None:
    """gRPC counts a call that is kept as open, and refuses further ones of its connection by itself."""
    sent = 6000

    async def work(site: Loopback) -> None:
        host, _, port = site.endpoint.rpartition(":")

        def flood() -> None:
            with socket.create_connection((host, int(port)), 10) as raw:
                try:
                    for part in opened_and_cancelled(sent, token):
                        raw.sendall(part)
                except OSError:
                    pass  # the provider has closed it

        flooding = asyncio.create_task(asyncio.to_thread(flood))
        for _ in range(10):
            assert (await site.call("Exchange", "GetEpoch", GetEpochRequest(), "rival")).head.body
        await flooding

    seen: list[str] = []
    honest = CallRecorder.record

    def record(self: Any, line: AuditRecord, who: Any, peer: str) -> None:
        seen.append(line.status)
        honest(self, line, who, peer)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CallRecorder, "record", record)
        patch.setattr(peers, "KEPT_SECONDS", 5.0)
        on_loopback(tmp_path, work)
    assert len(seen) < sent / 4


@pytest.mark.usefixtures("plain_port")
def test_connections_of_nobody_are_closed_above_a_number_and_known_ones_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "UNKNOWN_CONNECTIONS", 3)
    monkeypatch.setattr(connections, "GRACE_LOOKS", 0)

    async def work(site: Loopback) -> None:
        host, _, port = site.endpoint.rpartition(":")
        assert (await site.call("Exchange", "GetEpoch", GetEpochRequest())).head.body
        silent = [socket.create_connection((host, int(port)), 5) for _ in range(8)]
        try:
            conduct = Peers()
            watch = ConnectionWatch(int(port), conduct)
            mine = {f"ipv4:{one.getsockname()[0]}:{one.getsockname()[1]}" for one in silent}
            closed: set[str] = set()

            async def five_closed() -> bool:
                # the connection of the site's own client is known
                found = await asyncio.to_thread(watch._found, os.listdir("/proc/self/fd"))  # noqa: PTH208
                conduct.known.update({name: 0.0 for name in found if name not in mine})
                closed.update(await watch.look())
                return len(closed) == 5

            await until(five_closed, "five of eight to be closed")
            assert closed < mine
            assert (await site.call("Exchange", "GetEpoch", GetEpochRequest())).head.body
        finally:
            for one in silent:
                one.close()

    on_loopback(tmp_path, work)


def test_calls_above_the_number_inside_are_kept_when_they_come_in_floods(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(admission.CONCURRENT_STREAMS, Role.TENANT, 0)
    monkeypatch.setattr(peers, "QUICK_ANSWERS", 3)
    monkeypatch.setattr(peers, "QUICK_ANSWERS_PER_SECOND", 0.0)
    kept: list[str] = []

    async def keep(_: Any, peer: str) -> None:
        kept.append(peer)

    monkeypatch.setattr(Peers, "keep", keep)

    async def work(site: Loopback) -> None:
        for _ in range(5):
            call = Stub(site.channel, "Runs").WatchAlerts(WatchAlertsRequest(run_id=bytes(16)), metadata=bearer("acme"))
            assert (await refused(call.read()))[0] is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert len(kept) == 2

    on_loopback(tmp_path, work)


@pytest.mark.usefixtures("plain_port")
def test_a_probe_of_health_is_answered_while_its_address_floods(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers, "QUICK_ANSWERS", 3)
    monkeypatch.setattr(peers, "QUICK_ANSWERS_PER_SECOND", 0.0)
    kept: list[str] = []

    async def keep(_: Any, peer: str) -> None:
        kept.append(peer)

    monkeypatch.setattr(Peers, "keep", keep)

    async def work(site: Loopback) -> None:
        own = [("grpc.use_local_subchannel_pool", 1)]
        async with (
            grpc.aio.insecure_channel(site.endpoint, own) as flooding,
            grpc.aio.insecure_channel(site.endpoint, own) as probing,
        ):
            for channel, calls in ((flooding, peers.QUIET_CALLS + 5), (probing, 5)):
                for _ in range(calls):
                    await channel.unary_unary("/grpc.health.v1.Health/Check")(b"", timeout=5)
        assert len(kept) == 5 and len(set(kept)) == 1

    on_loopback(tmp_path, work)


# ---- runs and reports -----------------------------------------------------------------------------------------------


def run_of(number: int, node: str = "n1", ranks: int = 1, tenant: str = "acme/a") -> Run:
    return Run(number.to_bytes(16, "big"), tenant, node, 1, ranks, False, 0.0)


def test_an_organisation_has_a_number_of_runs_on_a_node_and_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budgets, "ACTIVE_RUNS_ON_NODE", 3)
    monkeypatch.setattr(budgets, "ACTIVE_RUNS", 5)
    monkeypatch.setattr(budgets, "ACTIVE_RANKS", 64)
    gone: set[bytes] = set()
    joins = JoinBudgets(lambda run: run.run_id not in gone, HandClock().clock)
    joins.restore(run_of(number) for number in range(3))
    with pytest.raises(Exhausted, match="on one node"):
        joins.take("acme/b", "n1", bytes([9]) * 16, 1)
    joins.take("rival", "n1", bytes([9]) * 16, 1)
    for number in (3, 4):
        joins.take("acme/b", "n2", bytes([9]) * 16, 1)
        joins.joined(run_of(number, "n2"))
    with pytest.raises(Exhausted, match="at most 5 at once"):
        joins.take("acme/b", "n3", bytes([9]) * 16, 1)
    gone.add(run_of(0).run_id)  # it was lost: nobody says so
    joins.take("acme/b", "n3", bytes([9]) * 16, 1)
    with pytest.raises(Exhausted, match="ranks"):
        joins.take("acme/b", "n3", bytes([9]) * 16, 63)


def test_a_job_of_a_thousand_nodes_joins_at_once_and_a_flood_on_one_node_does_not() -> None:
    joins = JoinBudgets(lambda _: True, (now := HandClock()).clock)
    for number in range(1024):
        joins.take("acme", f"n{number}", number.to_bytes(16, "big"), 8)
        joins.joined(run_of(number, f"n{number}", 8, "acme"))
    for _ in range(int(budgets.NODE_JOINS)):
        joins.take("rival", "n1", bytes(16), 1)
    with pytest.raises(Exhausted, match="in a minute"):
        joins.take("rival", "n1", bytes(16), 1)
    now.now += 1 / budgets.NODE_JOINS_PER_SECOND
    joins.take("rival", "n1", bytes(16), 1)


def test_what_was_reported_today_counts_after_a_restart_and_for_the_whole_organisation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(budgets, "RANK_SECONDS_PER_DAY", 1000)
    monkeypatch.setattr(budgets, "ROWS_PER_DAY", 10)
    today = [ReportedAmount("acme/a", 700, 2), ReportedAmount("acme/b", 299, 2), ReportedAmount("rival", 5, 10)]
    reported = ReportBudgets(HandClock().clock, today)
    reported.take("acme/c", 1)
    with pytest.raises(Exhausted, match="seconds of ranks"):
        reported.take("acme/c", 1)
    with pytest.raises(Exhausted, match="changes"):
        reported.take("rival", 1)


def test_the_end_of_a_run_gives_no_budget_back_and_ended_runs_report_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budgets, "RANK_SECONDS_AT_ONCE", 10.0)
    monkeypatch.setattr(budgets, "RANK_SECONDS_PER_SECOND", 0.001)

    async def work(site: Loopback) -> None:
        first = await join(site)
        await site.call("Runs", "Report", report(first, 0, *[1.0] * 8))
        await site.call("Runs", "EndRun", EndRunRequest(run_id=first, state=1))
        code, _ = await refused(site.call("Runs", "Report", report(first, 8, 1.0)))
        assert code is grpc.StatusCode.FAILED_PRECONDITION
        second = await join(site)
        code, message = await refused(site.call("Runs", "Report", report(second, 0, *[1.0] * 8)))
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED and "organisation" in message

    on_loopback(tmp_path, work)


# ---- metrics --------------------------------------------------------------------------------------------------------


async def scraped(address: str, head: str = "") -> str:
    host, _, port = address.removeprefix("http://").removesuffix("/metrics").rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"GET /metrics HTTP/1.1\r\n{head}\r\n".encode())
    text = (await reader.read()).decode()
    writer.close()
    await writer.wait_closed()
    return text


def test_metrics_change_once_a_minute_and_silent_readers_keep_no_other_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_server, "CONNECTION_SECONDS", 0.2)
    monkeypatch.setattr(metrics_server, "CONNECTIONS_PER_SECOND", 1000.0)
    calls = [0]

    def read() -> bytes:
        calls[0] += 1
        return b"calls_total %d\n" % calls[0]

    async def work() -> None:
        async with serving_metrics(read, MetricsAddress("127.0.0.1:0")) as address:
            first = await scraped(address)
            host, _, port = address.removeprefix("http://").removesuffix("/metrics").rpartition(":")
            silent = [await asyncio.open_connection(host, int(port)) for _ in range(30)]
            assert await scraped(address) == first and first.endswith("calls_total 2\n")
            for _, writer in silent:
                writer.close()

    asyncio.run(work())


def test_metrics_are_for_this_machine_and_for_who_has_the_token(tmp_path: Path) -> None:
    with pytest.raises(ProviderError, match="--metrics-public"):
        MetricsAddress("0.0.0.0:7480").check()
    MetricsAddress("0.0.0.0:7480", public=True).check()
    token = tmp_path / "token"
    token.write_text("s" * 20 + "\n")
    token.chmod(0o644)

    async def work() -> None:
        with pytest.raises(ProviderError, match="chmod 600"):
            async with serving_metrics(lambda: b"x\n", MetricsAddress("127.0.0.1:0", token)):
                pass
        token.chmod(0o600)
        async with serving_metrics(lambda: b"x\n", MetricsAddress("127.0.0.1:0", token)) as address:
            assert "401" in await scraped(address) and "401" in await scraped(address, "Authorization: Bearer t\r\n")
            assert (await scraped(address, f"Authorization: Bearer {'s' * 20}\r\n")).endswith("x\n")
        shared = tmp_path / "shared"
        shared.mkdir(mode=0o755)
        with pytest.raises(ProviderError, match="yours alone"):
            async with serving_metrics(lambda: b"", MetricsAddress(f"unix:{shared}/m.sock")):
                pass
        async with serving_metrics(lambda: b"x\n", MetricsAddress(f"unix:{tmp_path}/run/m.sock")):
            reader, writer = await asyncio.open_unix_connection(tmp_path / "run" / "m.sock")
            writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
            assert (await reader.read()).endswith(b"x\n")
            writer.close()
        assert not (tmp_path / "run" / "m.sock").exists()

    asyncio.run(work())


# ---- the audit log --------------------------------------------------------------------------------------------------


def test_calls_of_strangers_are_one_line_with_a_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "LINES_OF_A_CALLER", 2)
    log = AuditLog(tmp_path)
    record = CallRecorder(log, lambda: 1e9)
    for number in range(500):
        record.record(
            AuditRecord(method="GetEpoch", status="UNAUTHENTICATED"), None, f"ipv4:10.0.0.{number % 7}:{number}"
        )
    for _ in range(9):
        record.record(AuditRecord("tenant", "light/a", "GetEpoch", status="OK"), LIGHT, "ipv4:10.0.0.1:1")
    for _ in range(4):  # a quota is counted from these
        record.record(AuditRecord("tenant", "light/a", "GetOffer", status="OK"), LIGHT, "ipv4:10.0.0.1:1")
    record.flush()
    record.flush()
    log.close()
    (file,) = tmp_path.iterdir()
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    audit_log.verify(file)
    assert [line["method"] for line in lines] == ["GetEpoch"] * 2 + ["GetOffer"] * 4 + ["GetEpoch"] * 2
    assert (lines[6]["calls"], lines[6]["peers"], lines[6]["name"]) == (500, 7, "")
    assert lines[7]["calls"] == 7 and "calls" not in lines[0]


def test_a_start_reads_the_audit_log_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = AuditLog(tmp_path)
    for _ in range(10):
        log.record(1e9, AuditRecord("tenant", "acme", "GetOffer", status="OK"))
    log.close()
    reads: list[Path] = []
    honest = Path.open

    def opened(self: Path, *arguments: Any, **options: Any) -> Any:
        if self.suffix == ".jsonl" and arguments[:1] == ("rb",):
            reads.append(self)
        return honest(self, *arguments, **options)

    monkeypatch.setattr(Path, "open", opened)
    log = AuditLog(tmp_path)
    assert len(log.today(1e9)) == 10
    assert len(list(log.finished((), 1e9 + audit_log.DAY_SECONDS))) == 1
    log.close()
    assert len(reads) == 1


# ---- memory ---------------------------------------------------------------------------------------------------------


def test_the_provider_remembers_runs_that_go_on_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake, "FEW_RUNS", 3)

    async def inside() -> None:
        async with monitored_site(tmp_path) as site:
            for _ in range(20):
                run = await site.join("n1")
                await site.feel(run, 1.0)
                site.monitor.unwatch(run.run_id)  # it is lost
            assert len(site.intake._taken) <= 4

    asyncio.run(inside())
