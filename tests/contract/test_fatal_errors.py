"""After a fatal error DuckDB refuses all work of this process. The file is sound, and only a new process opens it."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import duckdb
import grpc
import pytest
from grpc_health.v1 import health_pb2

from pharoah_protocol.v1 import ListRequest
from pharoah_provider.services import upkeep
from pharoah_provider.storage.duckdb.database import Database
from pharoah_serving.errors import StoreError
from tests.harness.exchange import refused
from tests.harness.loopback import Loopback, loopback
from tests.harness.until import until


def fail_fatally(path: Path) -> None:
    """Let a checkpoint fail in a database that this process has open: DuckDB has a setting for its own tests."""
    with duckdb.connect(str(path)) as connection:
        connection.execute("PRAGMA debug_checkpoint_abort='before_header'")
        connection.execute("CREATE TABLE more AS SELECT 1")
        with pytest.raises(duckdb.FatalException):
            connection.execute("FORCE CHECKPOINT")


def test_reads_and_writes_after_a_fatal_error_say_what_to_do(tmp_path: Path) -> None:
    database = Database(path := tmp_path / "p.duckdb")
    fail_fatally(path)
    assert not database.failed, "nobody has seen it"
    with pytest.raises(StoreError, match="fatal error; start the provider again"):
        asyncio.run(database.read("SELECT * FROM nodes"))
    assert database.failed
    with pytest.raises(StoreError, match="fatal error; start the provider again") as error:
        asyncio.run(database.execute("DELETE FROM nodes"))
    assert "restore a copy" not in str(error.value)
    database.close()
    again = Database(path)
    assert again.query("SELECT count(*) AS n FROM nodes") == [{"n": 0}]
    again.close()


async def is_serving(site: Loopback) -> bool:
    check = site.channel.unary_unary("/grpc.health.v1.Health/Check")
    status = health_pb2.HealthCheckResponse.FromString(await check(b"", timeout=5)).status
    return bool(status == health_pb2.HealthCheckResponse.SERVING)


def test_a_provider_with_a_fatal_error_is_not_serving(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(upkeep, "LOOK_SECONDS", 0.02)

    async def ended(site: Loopback) -> bool:
        return not await is_serving(site)

    async def inside() -> None:
        async with loopback(tmp_path) as site:
            assert await is_serving(site)
            fail_fatally(tmp_path / "p.duckdb")
            code, _ = await refused(site.call("Operator", "List", ListRequest(listing="nodes"), "ops"))
            assert code is grpc.StatusCode.UNAVAILABLE
            await until(lambda: ended(site), "the health status")

    with caplog.at_level(logging.CRITICAL):
        asyncio.run(inside())
    assert "DuckDB has ended with a fatal error; start the provider again" in caplog.text
