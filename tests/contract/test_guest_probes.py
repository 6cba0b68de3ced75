"""The sidecar's part of guest probes over real gRPC: which orders it does, once each, one at a time, with a real child
or a script in its place."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from evaluation.hardening.guest_probes import REAL_PROBES, done_by_a_sidecar
from pharoah.sidecar.guest_probes import GuestProbes
from pharoah.sidecar.provider_connection import ProviderConnection
from pharoah_protocol.guest_probes import GuestOrder, GuestResult, is_signed_by_run
from pharoah_protocol.v1 import Consent
from pharoah_protocol.vocabulary import ProbeStatus
from pharoah_provider.monitoring.guest_orders import GuestOrders, SignedOrder, StopOrder
from pharoah_serving.keys import open_keys
from tests.harness.loopback import Loopback, loopback
from tests.harness.runs import join
from tests.harness.until import until

pytestmark = pytest.mark.usefixtures("quick_messages")
RUN_ID = b"r" * 16
STRANGER = Ed25519PrivateKey.from_private_bytes(b"s" * 32)


@dataclass
class MaliciousProvider:
    """Sends a sidecar what a test puts into the queue, and keeps what the sidecar sends."""

    key: Ed25519PrivateKey
    out: asyncio.Queue[SignedOrder | StopOrder] = field(default_factory=asyncio.Queue)
    results: list[GuestResult] = field(default_factory=list)
    public_key: bytes = b""
    """The key of the run."""

    def order(self, key: Ed25519PrivateKey | None = None, **changes: Any) -> GuestOrder:
        """Send an order that is sound but for these changes, signed with the provider's key or another one."""
        sound: dict[str, Any] = {
            "order_id": secrets.token_bytes(16),
            "run_id": RUN_ID,
            "challenge": secrets.token_bytes(32),
            "benchmark": "gemm",
            "repeats": 4,
            "limit_milliseconds": 500,
            "duty_thousandths": 500,
            "expires_at": int(time.time()) + 60,
        }
        order = GuestOrder(**{**sound, **changes})
        self.out.put_nowait(SignedOrder(order.encode(), order.make_signature(key or self.key)))
        return order

    async def orders(self, _: GuestOrders, __: Any) -> AsyncGenerator[SignedOrder | StopOrder, None]:
        while True:
            yield await self.out.get()

    def answered(self, _: GuestOrders, __: Any, body: bytes, signature: bytes) -> None:
        assert is_signed_by_run(body, signature, self.public_key)
        self.results.append(GuestResult.decode(body))


@dataclass
class Child:
    """Stands in for the child: notes the orders, and answers when it may."""

    begun: list[GuestOrder] = field(default_factory=list)
    ended: list[GuestOrder] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    """How long each may take."""
    may_answer: asyncio.Event = field(default_factory=asyncio.Event)

    async def measure(self, order: GuestOrder, seconds: float) -> GuestResult:
        self.begun.append(order)
        self.seconds.append(seconds)
        try:
            await self.may_answer.wait()
        finally:
            self.ended.append(order)
        return GuestResult(order=order, status=ProbeStatus.MEASURED, seconds=(0.01,))


@dataclass
class Scene:
    """A malicious provider, and a sidecar that it sends orders to."""

    provider: MaliciousProvider
    child: Child
    probes: GuestProbes

    async def statuses(self, *wanted: ProbeStatus) -> None:
        """Wait until the sidecar has sent results with these statuses."""
        results = self.provider.results
        await until(lambda: [one.status for one in results] == list(wanted), f"results {wanted}")


@asynccontextmanager
async def scene(folder: Path, monkeypatch: pytest.MonkeyPatch, **changes: Any) -> AsyncIterator[Scene]:
    async with loopback(folder) as site:
        malicious = MaliciousProvider(open_keys(str(folder / "keys")).signing_key)
        monkeypatch.setattr(GuestOrders, "orders", lambda *arguments: malicious.orders(*arguments))
        monkeypatch.setattr(GuestOrders, "take_answer", lambda *arguments: malicious.answered(*arguments))
        agreed = {"allow_beside_job": True, "guest_probe_seconds": 60.0, "probe_limit_seconds": 4.0}
        settings = site.settings(**{**agreed, **changes})
        connection, child = ProviderConnection(settings), Child()
        probes = GuestProbes(connection, RUN_ID, settings, time.monotonic(), child.measure)
        malicious.public_key = probes.public_key
        await _join(site, probes)
        probes.start()
        try:
            yield Scene(malicious, child, probes)
        finally:
            await probes.stop()
            await connection.channel.close(None)


async def _join(site: Loopback, probes: GuestProbes) -> None:
    consent = Consent(beside_job=True, limit_seconds=5.0, probe_key=probes.public_key)
    await join(site, run_id=RUN_ID, consent=consent)


def in_scene(folder: Path, monkeypatch: pytest.MonkeyPatch, work: Callable[[Scene], Any], **changes: Any) -> None:
    async def inside() -> None:
        async with scene(folder, monkeypatch, **changes) as at:
            await work(at)

    asyncio.run(inside())


@pytest.mark.timeout(900)  # a busy machine has few moments in which nothing waits for a core
def test_orders_of_monitoring_are_done_in_real_processes(tmp_path: Path) -> None:
    assert asyncio.run(done_by_a_sidecar(tmp_path)) >= REAL_PROBES


def test_an_order_is_done_once_and_its_result_is_signed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(at: Scene) -> None:
        order = at.provider.order()
        await until(lambda: bool(at.child.begun), "the order to begin")
        assert at.probes.measuring and at.child.begun == [order]
        at.child.may_answer.set()
        await at.statuses(ProbeStatus.MEASURED)
        assert not at.probes.measuring and at.provider.results[0].order == order
        at.provider.out.put_nowait(SignedOrder(order.encode(), order.make_signature(at.provider.key)))
        at.provider.order()
        await at.statuses(ProbeStatus.MEASURED, ProbeStatus.MEASURED)
        assert at.child.begun.count(order) == 1 and len(at.child.begun) == 2

    in_scene(tmp_path, monkeypatch, work)


def test_orders_that_the_provider_has_not_signed_for_this_run_are_not_even_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(at: Scene) -> None:
        at.child.may_answer.set()
        at.provider.order(key=STRANGER)
        at.provider.order(run_id=b"x" * 16)
        at.provider.out.put_nowait(SignedOrder(b"", b""))
        at.provider.out.put_nowait(SignedOrder(bytes(256), bytes(64)))
        at.provider.out.put_nowait(StopOrder(b"nothing"))
        sound = at.provider.order()
        await at.statuses(ProbeStatus.MEASURED)
        assert at.child.begun == [sound]

    in_scene(tmp_path, monkeypatch, work)


@pytest.mark.parametrize(
    "changes",
    [
        {"expires_at": 1},
        {"expires_at": 1 << 33},
        {"limit_milliseconds": 2001},
        {"duty_thousandths": 100},
    ],
    ids=str,
)
def test_orders_beyond_what_the_tenant_allows_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, int]
) -> None:
    async def work(at: Scene) -> None:
        at.provider.order(**changes)
        await at.statuses(ProbeStatus.REFUSED)
        assert at.child.begun == []

    in_scene(tmp_path, monkeypatch, work)


def test_the_budget_of_an_hour_ends_orders_and_the_child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(at: Scene) -> None:
        at.child.may_answer.set()
        at.provider.order()
        await at.statuses(ProbeStatus.MEASURED)
        assert at.child.seconds[0] <= 1.2, "a child is stopped when the budget is used up"
        at.provider.order(limit_milliseconds=650)
        await at.statuses(ProbeStatus.MEASURED, ProbeStatus.REFUSED)

    in_scene(tmp_path, monkeypatch, work, guest_probe_seconds=1.2)


def test_never_two_at_a_time_and_a_stopped_order_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(at: Scene) -> None:
        first = at.provider.order()
        await until(lambda: bool(at.child.begun), "the first order")
        at.provider.order()
        at.provider.out.put_nowait(StopOrder(secrets.token_bytes(16)))
        at.provider.out.put_nowait(StopOrder(first.order_id))
        await until(lambda: bool(at.child.ended), "the first order to end")
        assert at.child.begun == at.child.ended == [first] and at.provider.results == []
        at.child.may_answer.set()
        third = at.provider.order()
        await at.statuses(ProbeStatus.MEASURED)
        assert at.child.begun == [first, third]

    in_scene(tmp_path, monkeypatch, work)


def test_the_next_order_may_come_while_the_result_of_the_last_is_on_its_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    call, received = ProviderConnection.call, asyncio.Event()

    async def slowly(self: ProviderConnection, method: Any, request: Any) -> Any:
        answer = await call(self, method, request)
        await received.wait()
        return answer

    monkeypatch.setattr(ProviderConnection, "call", slowly)

    async def work(at: Scene) -> None:
        at.child.may_answer.set()
        first = at.provider.order()
        await at.statuses(ProbeStatus.MEASURED)
        second = at.provider.order()
        await until(lambda: at.child.begun == [first, second], "the second order")
        received.set()
        await at.statuses(ProbeStatus.MEASURED, ProbeStatus.MEASURED)

    in_scene(tmp_path, monkeypatch, work)


def test_the_end_of_the_run_ends_an_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(at: Scene) -> None:
        order = at.provider.order()
        await until(lambda: bool(at.child.begun), "the order")
        await at.probes.stop()
        assert at.child.ended == [order] and at.provider.results == [] and not at.probes.measuring

    in_scene(tmp_path, monkeypatch, work)


def test_without_consent_no_key_is_made_and_no_stream_is_opened(tmp_path: Path) -> None:
    async def inside() -> None:
        async with loopback(tmp_path) as site:
            for changes in ({"guest_probe_seconds": 60.0}, {"allow_beside_job": True}):
                settings = site.settings(**changes)
                connection = ProviderConnection(settings)
                probes = GuestProbes(connection, RUN_ID, settings, time.monotonic())
                probes.start()
                assert probes.public_key == b"" and probes._watching is None
                await probes.stop()
                await connection.channel.close(None)

    asyncio.run(inside())


def test_results_of_one_size_whatever_came_of_an_order() -> None:
    order = GuestOrder(
        order_id=bytes(16), run_id=RUN_ID, challenge=bytes(32), benchmark="gemm", repeats=1, limit_milliseconds=1,
        duty_thousandths=1, expires_at=1,
    )  # fmt: skip
    measured = GuestResult(order=order, status=ProbeStatus.MEASURED, seconds=(0.5,) * 64)
    assert len({len(replace(measured, status=status).encode()) for status in ProbeStatus}) == 1
    assert len(measured.encode()) == len(replace(measured, seconds=()).encode())
