from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

from pharoah_provider.storage.duckdb.database import Database, migrate, write_out
from pharoah_serving.errors import StoreError


def telemetry(value: float) -> dict[str, list[object]]:
    return {"node": ["n"], "last_at": [1.0], "metric": ["m"], "device": [""], "value": [value]}


def test_rows_that_append_has_acknowledged_are_there_after_kill_9(tmp_path: Path) -> None:
    script = """
import asyncio, os, sys
from pathlib import Path
from pharoah_provider.storage.duckdb.database import Database
database = Database(Path(sys.argv[1]))
for value in range(50):
    row = {"node": ["n"], "last_at": [1.0], "metric": ["m"], "device": [""], "value": [float(value)]}
    asyncio.run(database.append("telemetry_spans", row))
    print(value, flush=True)
    if value == 30:
        os.kill(os.getpid(), 9)
"""
    path = tmp_path / "p.duckdb"
    done = subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True)
    acknowledged = len(done.stdout.split())
    assert done.returncode == -9 and acknowledged == 31
    wal = path.with_name(f"{path.name}.wal")
    assert wal.exists()
    write_out(path)
    assert not wal.exists(), "a copy of the file alone is whole"
    database = Database(path)
    assert database.query("SELECT count(*) AS n FROM telemetry_spans")[0]["n"] == acknowledged
    database.close()


def test_a_bad_row_does_not_make_other_changes_of_its_group_fail(tmp_path: Path) -> None:
    database = Database(tmp_path / "p.duckdb")

    async def all_at_once() -> list[BaseException | None]:
        changes = [database.append("telemetry_spans", telemetry(float(i))) for i in range(20)]
        bad = database.append("telemetry_spans", {"no_such_column": [1]})
        return await asyncio.gather(*changes[:10], bad, *changes[10:], return_exceptions=True)

    results = asyncio.run(all_at_once())
    assert [type(r) for r in results if r is not None] == [StoreError]
    assert database.query("SELECT count(*) AS n FROM telemetry_spans")[0]["n"] == 20
    database.close()


def test_a_caller_that_stops_waiting_does_not_stop_the_writer(tmp_path: Path) -> None:
    """A tenant's connection breaks in the middle of a call."""
    database = Database(tmp_path / "p.duckdb")

    async def work() -> None:
        for value in range(20):
            waiting = asyncio.create_task(database.append("telemetry_spans", telemetry(float(value))))
            await asyncio.sleep(0)  # it is queued
            waiting.cancel()
        async with asyncio.timeout(10):
            await database.append("telemetry_spans", telemetry(20.0))

    asyncio.run(work())
    assert database.query("SELECT count(*) AS n FROM telemetry_spans")[0]["n"] == 21
    database.close()


def test_migrating_twice_is_migrating_once(tmp_path: Path) -> None:
    connection = duckdb.connect(str(tmp_path / "p.duckdb"))
    migrate(connection)
    first = connection.execute("SELECT * FROM schema_version").fetchall()
    migrate(connection)
    assert connection.execute("SELECT * FROM schema_version").fetchall() == first != []


def test_a_database_another_process_owns_is_named(tmp_path: Path) -> None:
    path = tmp_path / "p.duckdb"
    database = Database(path)
    script = f"""
from pathlib import Path
from pharoah_provider.storage.duckdb.database import Database
Database(Path({str(path)!r}))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    database.close()
    assert f"{path}: another process has this database open (pid {os.getpid()})" in done.stderr


def test_a_corrupt_database_is_named(tmp_path: Path) -> None:
    path = tmp_path / "p.duckdb"
    path.write_bytes(os.urandom(8192))
    with pytest.raises(StoreError, match=r"p\.duckdb.*not a readable"):
        Database(path)


def test_a_database_with_a_damaged_block_is_called_corrupt_and_not_locked(tmp_path: Path) -> None:
    path = tmp_path / "p.duckdb"
    Database(path).close()
    content = bytearray(path.read_bytes())
    for at in range(4096, len(content), 512):
        content[at] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(StoreError, match=r"p\.duckdb.*corrupt"):
        Database(path)


def test_a_full_disk_is_an_error_and_what_was_acknowledged_stays(tmp_path: Path) -> None:
    script = """
import asyncio, resource, signal, sys
from pathlib import Path
from pharoah_serving.errors import StoreError
from pharoah_provider.storage.duckdb.database import Database
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # writes past the limit then fail as on a full disk
database = Database(Path(sys.argv[1]))
def row(n):
    text = {"node": ["n" * 50] * n, "metric": ["m"] * n, "device": [""] * n}
    return {**text, "last_at": [1.0] * n, "value": [1.0] * n}
asyncio.run(database.append("telemetry_spans", row(10)))
used = max(path.stat().st_size for path in Path(sys.argv[1]).parent.iterdir())
resource.setrlimit(resource.RLIMIT_FSIZE, (used + 4096, used + 4096))
try:
    for _ in range(50):
        asyncio.run(database.append("telemetry_spans", row(20_000)))
except StoreError as error:
    print("refused:", error, flush=True)
import os
os._exit(0)
"""
    path = tmp_path / "p.duckdb"
    done = subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, text=True)
    assert "refused:" in done.stdout and str(path) in done.stdout, done.stderr
    database = Database(path)
    assert database.query("SELECT count(*) AS n FROM telemetry_spans")[0]["n"] >= 10
    database.close()
