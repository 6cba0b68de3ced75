"""Costs of a query, and what the time after it reveals: real processes, loopback, mutual TLS, warm tables."""

from __future__ import annotations

import asyncio
import copy
import time
from collections.abc import Awaitable, Callable
from math import inf, sqrt
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from evaluation.figures import Figures
from evaluation.privacy.exchange_site import ExchangeSite, exchange_site, release_for_node, ticket
from evaluation.privacy.synthetic_release import Universe
from evaluation.privacy.table_enumeration import auc
from pharoah.sidecar.exchange_client import ExchangeClient
from pharoah.sidecar.file_work import FileWork
from pharoah.sidecar.message_times import MessageTimes
from pharoah.sidecar.provider_connection import ProviderConnection
from pharoah.sidecar.verdict_rules import verdict_from_rows
from pharoah_archetypes import rung_tokens
from pharoah_learning.release import ClassKey
from pharoah_learning.sealing import Epoch
from pharoah_protocol.rpc import Stub
from pharoah_protocol.tables.query import blind, inputs_of
from pharoah_protocol.tables.rows import ROW_BYTES
from pharoah_protocol.v1 import RevokeRequest
from pharoah_protocol.vocabulary import Scope
from pharoah_protocol.voprf import group, libsodium, protocol, pure_python

CONNECTIONS, LAUNCHES_OF_A_CONNECTION = 6, 4
"""Launches at one time share some connections, each below the calls that a connection carries at once (ADR 23)."""
WATCHED_LAUNCHES = 8_000
"""Launches whose timing the attacker sees, also in the short form: the half width of an area under the curve of this
many launches is 0.013, and fewer than 3,300 could not show the bound of 0.02."""

REVOCATION_SECONDS = 60.0
"""What a revocation may take. A verdict that is the same for so long is not asked for again."""


def batches(universe: Universe, epoch: Epoch, figures: Figures, repeats: int) -> None:
    """One class's batch of 64: the tenant's work on either backend, and the provider's work."""
    one = epoch.classes[epoch.ids[ClassKey(scope=Scope.SERVER, group_id="a")]]
    inputs = inputs_of(universe.jobs[0])

    def client() -> None:
        began = time.perf_counter()
        again = blind(inputs)
        spent = time.perf_counter() - began
        evaluated, proof = protocol.evaluate(one.secret, one.public, again.blinded)
        began = time.perf_counter()
        protocol.verify(one.public, again.blinded, evaluated, proof)
        again.outputs(evaluated)
        times.append(spent + time.perf_counter() - began)

    for backend, name, bound in ((libsodium, "libsodium", 0.05), (pure_python, "python", 1.5)):
        times: list[float] = []
        with group.using(backend):
            for _ in range(repeats):
                client()
        figures.add(
            f"batch_client_seconds_{name}", median(times), f"<= {bound:g}", median(times) <= bound, _span(times)
        )
    batch, times = blind(inputs), []
    for _ in range(repeats):
        began = time.perf_counter()
        protocol.evaluate(one.secret, one.public, batch.blinded)
        times.append(time.perf_counter() - began)
    figures.add("batch_server_seconds", median(times), "<= 0.01", median(times) <= 0.01, _span(times))
    rows = len(one.content) // ROW_BYTES
    figures.add("table_bytes", len(one.content), "<= 1.1e6", len(one.content) <= 1.1e6, f"{rows} rows")


def queries(universe: Universe, figures: Figures, folder: Path, asked: int) -> None:
    """Latency of a verdict, time to revoke a row, and the attack that distinguishes hits from misses afterwards."""
    with exchange_site(folder / "site", release_for_node(universe)) as site:
        times = asyncio.run(_latencies(site, universe, asked))
        p50, p99 = (float(np.quantile(times, q)) for q in (0.5, 0.99))
        figures.add("verdict_p50_seconds", p50)
        figures.add("verdict_p99_seconds", p99, "<= 0.1", p99 <= 0.1, f"n={asked}, max {max(times):.3f}")
        seconds = asyncio.run(_revocation(site, universe))
        holds = seconds <= REVOCATION_SECONDS
        figures.add("revocation_seconds", seconds, f"<= {REVOCATION_SECONDS:g}", holds)
        _after_match(site, universe, figures)


async def _latencies(site: ExchangeSite, universe: Universe, asked: int) -> list[float]:
    settings = site.settings()
    provider = ProviderConnection(settings)
    exchange = ExchangeClient(provider, settings)
    await exchange.ask(universe.jobs[0], ticket())  # the table is downloaded once an epoch
    times = []
    for number in range(asked):
        node_ticket = ticket()
        began = time.perf_counter()
        verdict_from_rows(await exchange.ask(universe.jobs[number % len(universe.jobs)], node_ticket), "")
        times.append(time.perf_counter() - began)
    await provider.channel.close(None)
    return times


async def _revocation(site: ExchangeSite, universe: Universe) -> float:
    """Seconds from the operator's call until a tenant gets another verdict; infinite when it does not get one."""
    settings = site.settings()
    provider, rows = ProviderConnection(settings), release_for_node(universe).rows
    exchange = ExchangeClient(provider, settings)
    job, tokens = universe.jobs[3], rung_tokens(universe.jobs[3], "exact")
    ids = [row.id for row in rows if row.tokens == tokens]

    async def verdict() -> str:
        return verdict_from_rows(await exchange.ask(job, ticket()), "").status

    async def revoke() -> None:
        with site.operator() as channel:
            request = RevokeRequest(rows=ids)
            await asyncio.to_thread(Stub(channel, "Operator").Revoke, request, timeout=REVOCATION_SECONDS)

    try:
        return await seconds_until_changed(verdict, revoke, REVOCATION_SECONDS)
    finally:
        await provider.channel.close(None)


async def seconds_until_changed(
    state: Callable[[], Awaitable[str]], change: Callable[[], Awaitable[None]], most: float
) -> float:
    """Seconds from the beginning of `change` until the state is another one; infinite when that takes longer than
    `most`."""
    before, began = await state(), time.perf_counter()
    try:
        async with asyncio.timeout(most):
            await change()
            while await state() == before:
                await asyncio.sleep(0.1)
    except TimeoutError:
        return inf
    return time.perf_counter() - began


def _after_match(site: ExchangeSite, universe: Universe, figures: Figures) -> None:
    """Half of the launches are of known jobs. The provider sees gaps between calls, bytes and aborted calls."""
    stranger = Universe(99, 50)
    seen: list[tuple[bool, list[float]]] = asyncio.run(_launches(site, universe, stranger, WATCHED_LAUNCHES))
    labels = np.array([hit for hit, _ in seen])
    worst, name = 0.0, ""
    for at, feature in enumerate(("time from answer to decision", "bytes", "calls")):
        values = np.array([features[at] for _, features in seen])
        distance = abs(auc(values, labels.astype(int)) - 0.5) if len(set(values)) > 1 else 0.0
        if distance >= worst:
            worst, name = distance, feature
    half = 1.96 * sqrt(1 / 12 / (0.25 * WATCHED_LAUNCHES))
    value = max(worst, half)  # a smaller effect than this interval cannot be claimed
    interval = f"{name}; +-{half:.3f} n={WATCHED_LAUNCHES}"
    figures.add("after_match_auc_halfwidth", value, "<= 0.02", value <= 0.02, interval)


async def _launches(
    site: ExchangeSite, universe: Universe, stranger: Universe, launches: int
) -> list[tuple[bool, list[float]]]:
    settings = site.settings()
    slots, seen = asyncio.Semaphore(CONNECTIONS * LAUNCHES_OF_A_CONNECTION), []
    providers = [ProviderConnection(settings) for _ in range(CONNECTIONS)]
    warm = [ExchangeClient(provider, settings) for provider in providers]
    for exchange in warm:
        await exchange.ask(universe.jobs[0], ticket())

    async def launch(number: int) -> None:
        async with slots:
            hit = number % 2 == 0
            source = universe if hit else stranger
            exchange = copy.copy(warm[number % CONNECTIONS])  # one sidecar per job, all of one machine
            exchange.times, exchange._files = MessageTimes(), FileWork(settings.timeout_seconds)
            exchange._trust = copy.copy(exchange._trust)
            watched = _Watched(exchange._send)
            exchange._send = watched.call  # type: ignore[method-assign]
            await exchange.ask(source.jobs[number % len(source.jobs)], ticket())
            await exchange.decide(accept=True)
            seen.append((hit, watched.features()))

    await asyncio.gather(*(launch(number) for number in range(launches)))
    for provider in providers:
        await provider.channel.close(None)
    return seen


class _Watched:
    """Calls of one launch, as they pass."""

    def __init__(self, call: Callable[[str, Any], Any]) -> None:
        self._call = call
        self._calls: list[tuple[str, float, float, int]] = []

    async def call(self, method: str, request: Any) -> Any:
        began = time.perf_counter()
        answer = await self._call(method, request)
        self._calls.append((method, began, time.perf_counter(), request.ByteSize()))
        return answer

    def features(self) -> list[float]:
        answered = next(end for method, _, end, _ in self._calls if method == "Evaluate")
        decided = next(began for method, began, _, _ in self._calls if method == "Decide")
        return [decided - answered, float(sum(size for *_, size in self._calls)), float(len(self._calls))]


def _span(times: list[float]) -> str:
    low, high = (float(np.quantile(times, q)) for q in (0.05, 0.95))
    return f"[{low:.4f}, {high:.4f}]"
