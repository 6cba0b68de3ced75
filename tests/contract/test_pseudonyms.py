"""Pseudonyms by two key holders, over real gRPC: what each sees, what both make, and what is refused."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest

from pharoah._errors import UnknownReason
from pharoah._settings import Settings
from pharoah.sidecar.exchange_client import ExchangeClient
from pharoah.sidecar.provider_connection import ProviderConnection
from pharoah.sidecar.pseudonym_client import PseudonymClient
from pharoah.sidecar.run_reporter import reveal
from pharoah.sidecar.verdict_rules import verdict_from_rows
from pharoah_auditor.pseudonym_service import PseudonymServiceSettings, pseudonym_service
from pharoah_benchmarks.campaign.cell import Cell, CellResult, DryCell
from pharoah_learning.release import Release
from pharoah_protocol import pseudonyms
from pharoah_protocol.pseudonyms import PERIOD_SECONDS, period_at
from pharoah_protocol.rpc import Stub
from pharoah_protocol.v1 import (
    EndRunRequest,
    EndState,
    EvaluatePseudonymRequest,
    GetPseudonymKeyRequest,
    LearnRequest,
    ListRequest,
)
from pharoah_protocol.vocabulary import Outcome
from pharoah_protocol.voprf import protocol
from pharoah_provider.storage.duckdb import DuckStorage
from pharoah_serving import pseudonym_keys as holder_side
from pharoah_serving.keys import make_keys, open_keys
from pharoah_serving.quotas import Limits
from tests.harness.exchange import KNOWN, OTHER, RELEASE, on_loopback, refused
from tests.harness.loopback import TOKENS, Loopback, bearer, loopback, node, ticket
from tests.harness.runs import join, may_vote
from tests.harness.sockets import socket_folder
from tests.harness.tokens import write_list, write_token

AUDITOR_TOKEN = "tenant acme qqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqq"
"""The auditor's token for the tenant; the provider's is another one."""

Work = Callable[[Loopback, Settings], Awaitable[None]]


@asynccontextmanager
async def with_auditor(folder: Path, release: Release = RELEASE) -> AsyncIterator[tuple[Loopback, Settings]]:
    write_list(folder / "auditor-tokens", [AUDITOR_TOKEN])
    token = write_token(folder / "auditor.token", AUDITOR_TOKEN)
    with socket_folder() as sockets:
        settings = PseudonymServiceSettings(
            f"unix:{sockets}/a.sock", folder / "auditor", tokens=folder / "auditor-tokens", init=True
        )
        async with loopback(folder, release) as site, pseudonym_service(settings) as (address, public):
            (folder / "auditor.pub").write_text(public)
            yield (
                site,
                site.settings(
                    timeout_seconds=60.0,
                    auditor_endpoint=address,
                    auditor_key_file=str(folder / "auditor.pub"),
                    auditor_token_file=str(token),
                ),
            )


def among_three(folder: Path, work: Work) -> None:
    async def inside() -> None:
        async with with_auditor(folder) as (site, settings):
            await work(site, settings)

    asyncio.run(inside())


async def name_of(settings: Settings, fingerprint: Any = KNOWN) -> tuple[int, bytes]:
    provider = ProviderConnection(settings)
    namer = PseudonymClient(provider, settings)
    try:
        exchange = ExchangeClient(provider, settings)
        await exchange.epoch()
        return await namer.name(pseudonyms.blind_pseudonym(fingerprint), exchange.log)
    finally:
        await namer.close()
        await provider.channel.close(None)


def test_a_pseudonym_is_the_same_for_all_tenants_and_takes_both_keys(tmp_path: Path) -> None:
    async def work(_: Loopback, settings: Settings) -> None:
        period, name = await name_of(settings)
        assert (period, name) == await name_of(settings) and period == period_at(time.time())
        assert name != (await name_of(settings, OTHER))[1]
        secrets_ = [
            open_keys(tmp_path / "keys").pseudonym_secret,
            open_keys(tmp_path / "auditor" / "keys").pseudonym_secret,
        ]
        halves = [protocol.derive_key(s, key_info(period))[0] for s in secrets_]
        both = (sum(int.from_bytes(half, "little") for half in halves) % protocol.group.ORDER).to_bytes(32, "little")
        value = pseudonyms.pseudonym_input(KNOWN)
        assert name == protocol.full_evaluate(both, value)[:32]
        assert all(name != protocol.full_evaluate(half, value)[:32] for half in halves), (
            "one key alone does not make it"
        )

    among_three(tmp_path, work)


def key_info(period: int) -> bytes:
    from pharoah_archetypes.ladder import length_prefixed

    return length_prefixed(b"pharoah/names/v1", period.to_bytes(8, "big"))


def test_pseudonyms_of_two_periods_cannot_be_linked(tmp_path: Path) -> None:
    clock = [1e9]
    keys = holder_side.PseudonymKeys(make_keys(tmp_path / "keys"), lambda: clock[0])
    first = keys.current()
    clock[0] += PERIOD_SECONDS
    second = keys.current()
    assert second[0] == first[0] + 1 and second[1] != first[1]


def test_wrong_requests_are_refused(tmp_path: Path) -> None:
    async def work(site: Loopback, _: Settings) -> None:
        period = (await site.call("Pseudonyms", "GetPseudonymKey", GetPseudonymKeyRequest())).period
        good = protocol.blind(b"x")[1]
        for request, code, field in (
            (EvaluatePseudonymRequest(period=period + 1, blinded=good), grpc.StatusCode.NOT_FOUND, "period"),
            (EvaluatePseudonymRequest(period=period, blinded=bytes(32)), grpc.StatusCode.INVALID_ARGUMENT, "blinded"),
            (EvaluatePseudonymRequest(period=period, blinded=b"short"), grpc.StatusCode.INVALID_ARGUMENT, "blinded"),
        ):
            got, message = await refused(site.call("Pseudonyms", "EvaluatePseudonym", request))
            assert got is code and field in message
        got, _ = await refused(site.call("Pseudonyms", "GetPseudonymKey", GetPseudonymKeyRequest(), "ops"))
        assert got is grpc.StatusCode.PERMISSION_DENIED

    among_three(tmp_path, work)


def test_an_organisation_has_a_quota_of_pseudonyms_also_over_a_restart(tmp_path: Path) -> None:
    codes: list[grpc.StatusCode] = []

    async def evaluate(site: Loopback) -> None:
        period = (await site.call("Pseudonyms", "GetPseudonymKey", GetPseudonymKeyRequest())).period
        request = EvaluatePseudonymRequest(period=period, blinded=protocol.blind(b"x")[1])
        for who in ("one", "two", "acme"):
            try:
                await Stub(site.channel, "Pseudonyms").EvaluatePseudonym(request, timeout=5, metadata=bearer(who))
                codes.append(grpc.StatusCode.OK)
            except grpc.aio.AioRpcError as error:
                codes.append(error.code())

    for _ in range(2):
        on_loopback(tmp_path, evaluate, RELEASE, limits=Limits(organisation_pseudonyms=2))
    ok, exhausted = grpc.StatusCode.OK, grpc.StatusCode.RESOURCE_EXHAUSTED
    assert codes == [ok, ok, ok, exhausted, exhausted, ok], "one and two are accounts of one organisation"


def test_another_key_for_one_tenant_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pseudonyms made with a key for one tenant would reveal the tenant to the provider."""

    async def work(_: Loopback, settings: Settings) -> None:
        monkeypatch.setattr(holder_side.PseudonymKeys, "_key", lambda *_: protocol.derive_key(b"z" * 32, b""))
        with pytest.raises(UnknownReason, match="not the one in its log"):
            await name_of(settings)

    among_three(tmp_path, work)


def test_without_the_auditor_there_is_no_pseudonym_and_the_run_goes_on(tmp_path: Path) -> None:
    async def work(_: Loopback, settings: Settings) -> None:
        for changes, said in (
            ({"auditor_endpoint": ""}, "AUDITOR"),
            ({"auditor_endpoint": f"unix:{tmp_path}/nobody.sock"}, "reached"),
            ({"auditor_key_file": settings.provider_key_file}, "not signed"),
        ):
            with pytest.raises(UnknownReason, match=said):
                await name_of(replace(settings, **changes))  # type: ignore[arg-type]

    among_three(tmp_path, work)


async def ended(site: Loopback, who: str, state: str, period: int, name: bytes) -> None:
    run_id = await join(site, who=who)
    await may_vote(site, run_id, who)
    request = EndRunRequest(run_id=run_id, state=EndState.Value(state), period=period, pseudonym=name)
    await site.call("Runs", "EndRun", request, who)


@pytest.mark.usefixtures("minute_long_runs")
def test_shared_failures_become_a_warning_for_the_next_tenant(tmp_path: Path) -> None:
    organisations = {f"org{number}": f"tenant org{number} {number:02d}{'z' * 30}" for number in range(8)}

    async def inside() -> None:
        TOKENS.update(organisations)
        store = DuckStorage(tmp_path / "p.duckdb")
        cell, result = Cell("c", "mlp", {}), CellResult(cell="c", outcome=Outcome.OK, step_seconds=[0.1] * 4)
        await store.dry_runs.put(cell, "software", DryCell(fingerprint=OTHER.to_json()))
        for name in ("n1", "n2"):
            await store.evidence.append_cell("c", node(name), cell, replace(result, fingerprint=OTHER.to_json()))
        store.close()
        try:
            async with with_auditor(tmp_path) as (site, settings):
                period, name = await name_of(settings, OTHER)
                for who in organisations:
                    await ended(site, who, "END_STATE_FAILED", period, name)
                    await ended(site, who, "END_STATE_CANCELLED", period, name)
                listed = await site.call("Operator", "List", ListRequest(listing="outcomes"), "ops")
                assert '"organisations": 8, "runs": 8, "failed": 8' in listed.rows[0]
                async for _ in Stub(site.channel, "Operator").Learn(LearnRequest(), metadata=bearer("ops"), timeout=30):
                    pass
                provider = ProviderConnection(settings)
                exchange = ExchangeClient(provider, settings)
                shared = verdict_from_rows(await exchange.ask(OTHER, ticket(), await name_of(settings, OTHER)), "")
                assert [f.code for f in shared.findings] == ["reported-failure"]
                assert not shared.blocking
                private = verdict_from_rows(await exchange.ask(OTHER, ticket()), "")
                assert "reported-failure" not in [f.code for f in private.findings]
                await provider.channel.close(None)
        finally:
            for who in organisations:
                del TOKENS[who]

    asyncio.run(_prepared(tmp_path, organisations))
    asyncio.run(inside())


async def _prepared(folder: Path, organisations: dict[str, str]) -> None:
    """Files of a provider that knows these organisations."""
    async with loopback(folder, RELEASE):
        pass
    write_list(folder / "tokens", [*TOKENS.values(), *organisations.values()])


@pytest.mark.parametrize(
    ("changes", "field"),
    [({"pseudonym": b"short"}, "pseudonym"), ({"period": 2**40}, "period")],
)
@pytest.mark.usefixtures("minute_long_runs")
def test_shared_outcomes_with_wrong_fields_are_refused_and_the_run_goes_on(
    tmp_path: Path, changes: dict[str, Any], field: str
) -> None:
    async def work(site: Loopback, _: Settings) -> None:
        run_id = await join(site)
        await may_vote(site, run_id)
        good = {"run_id": run_id, "state": EndState.Value("END_STATE_FAILED")}
        vote = {"period": period_at(time.time()), "pseudonym": secrets.token_bytes(32)}
        code, message = await refused(site.call("Runs", "EndRun", EndRunRequest(**{**good, **vote, **changes})))
        assert code is grpc.StatusCode.INVALID_ARGUMENT and field in message
        await site.call("Runs", "EndRun", EndRunRequest(**good, **vote))
        again = EndRunRequest(**good, **{**vote, "pseudonym": hashlib.sha256(b"").digest()})
        await site.call("Runs", "EndRun", again)
        listed = await site.call("Operator", "List", ListRequest(listing="outcomes"), "ops")
        assert len(listed.rows) == 1, "the first word about a run stands"

    among_three(tmp_path, work)


@pytest.mark.usefixtures("minute_long_runs")
def test_a_run_that_outlives_the_period_of_its_name_ends_without_a_vote(tmp_path: Path) -> None:
    async def work(site: Loopback, _: Settings) -> None:
        run_id = await join(site)
        await may_vote(site, run_id)
        vote = {"period": period_at(time.time()) - 2, "pseudonym": secrets.token_bytes(32)}
        await site.call(
            "Runs", "EndRun", EndRunRequest(run_id=run_id, state=EndState.Value("END_STATE_FAILED"), **vote)
        )
        listed = await site.call("Operator", "List", ListRequest(listing="outcomes"), "ops")
        assert not listed.rows
        (run,) = (await site.call("Operator", "List", ListRequest(listing="runs"), "ops")).rows
        assert '"failed"' in run

    among_three(tmp_path, work)


def test_only_runs_of_ones_own_that_have_ended_can_be_revealed(tmp_path: Path) -> None:
    async def work(site: Loopback, settings: Settings) -> None:
        run_id = await join(site)
        with pytest.raises(UnknownReason, match="goes on"):
            await reveal(settings, run_id, KNOWN.to_json())
        await site.call("Runs", "EndRun", EndRunRequest(run_id=run_id, state=EndState.Value("END_STATE_FAILED")))
        with pytest.raises(UnknownReason, match="fingerprint"):
            await reveal(settings, run_id, "{}")
        for grammar in ("no grammar", f"fwd: gemm\nwith: {'x' * 70_000}"):
            with pytest.raises(UnknownReason, match="fingerprint: no rows can be made of it"):
                await reveal(settings, run_id, replace(KNOWN, grammar=grammar).to_json())
        await reveal(settings, run_id, KNOWN.to_json())
        with pytest.raises(UnknownReason, match="no such run"):
            await reveal(settings, bytes(16), KNOWN.to_json())
        listed = await site.call("Operator", "List", ListRequest(listing="revealed"), "ops")
        assert len(listed.rows) == 1 and KNOWN.archetype in listed.rows[0] and "failed" in listed.rows[0]

    among_three(tmp_path, work)
