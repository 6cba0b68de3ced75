"""DuckDB with one writer thread. A change is committed when its call returns."""

from __future__ import annotations

import asyncio
import logging
import queue
import re
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa

from pharoah_provider.storage.duckdb.changes import Change, Rows, WriteRows, make_all
from pharoah_serving.costs import Cost, current_cost, in_thread, measure
from pharoah_serving.errors import StoreError
from pharoah_system.trusted_paths import UntrustedPathError, find_folder, open_unshared

log = logging.getLogger("pharoah.provider.storage")

Parameters = Sequence[Any] | Mapping[str, Any]
"""Values for `?`, or by name for `$name`."""
Columns = Mapping[str, Sequence[Any] | pa.Array]
"""Columns of equal length by name."""


class _Queued(NamedTuple):
    """A change that waits for the writer."""

    change: Change | Rows
    cost: Cost | None
    """To whom the CPU seconds are charged."""
    done: Future[None]


class Statement(NamedTuple):
    """SQL, and the values for its `?`."""

    sql: str
    parameters: Sequence[Any]


_HOLDER = re.compile(r"\(PID (\d+)\)")
_SIGNS_OF_CORRUPTION = ("not a valid duckdb", "serialization", "corrupt", "checksum", "fatal error")
"""Parts of DuckDB's messages about files that it cannot read."""
MAX_GROUP = 512
"""Most changes of one commit."""


class Database:
    """Changes go through a queue to one thread that commits them in groups; each read uses a cursor of its own.

    Thread-safe. A group that cannot be committed is tried again change by change, so that one bad row does not make
    other changes fail.
    """

    def __init__(self, path: Path) -> None:
        """Open or create the file and bring its schema up to date. Raises StoreError naming the file, also where others
        can change it or its folder."""
        self.path = path
        _check_place(path)
        try:
            self._connection = duckdb.connect(str(path))
            migrate(self._connection)
        except duckdb.Error as error:
            raise StoreError(_explain(path, error)) from None
        self.failed = False
        """Whether DuckDB has ended with a fatal error: nothing can be read or stored before the next start."""
        self._queue: queue.Queue[_Queued | None] = queue.Queue()
        self._writer = threading.Thread(target=self._write, name="pharoah-store", daemon=True)
        self._writer.start()
        self._reads, self._reads_changed = 0, threading.Condition()
        """How many reads go on: a caller that was cancelled leaves its read to a thread."""

    async def append(self, table: str, columns: Mapping[str, Sequence[Any]]) -> None:
        """Append rows given as columns of equal length. Raises StoreError."""
        await self._change(appending(table, columns))

    async def execute(self, sql: str, parameters: Sequence[Any] = ()) -> None:
        """One statement. Raises StoreError."""
        await self._change(executing(sql, parameters))

    async def execute_all(self, *changes: Statement) -> None:
        """Several statements, all or none. Raises StoreError."""
        await self.apply(*(executing(sql, parameters) for sql, parameters in changes))

    async def apply(self, *changes: Change) -> None:
        """Several changes, all or none. Raises StoreError."""

        def each(connection: duckdb.DuckDBPyConnection) -> None:
            for change in changes:
                change(connection)

        await self._change(each)

    async def write(self, write: WriteRows, content: Any, size: int) -> None:
        """Commit `size` rows. `write` is called once for the contents of all callers that wait for the same commit.
        Raises StoreError."""
        await self._change(Rows(write, content, size, current_cost()))

    async def wait_committed(self) -> None:
        """Wait until everything that was queued before is committed or has failed. Raises StoreError."""
        await self.apply()

    def query(self, sql: str, parameters: Parameters = ()) -> list[dict[str, Any]]:
        """Rows of a read, on a cursor of the calling thread. Raises StoreError."""
        try:
            with self._reading(), self._connection.cursor() as cursor:
                cursor.execute(sql, parameters)
                names = [column[0] for column in cursor.description or ()]
                return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
        except duckdb.Error as error:
            raise StoreError(self._failure(error)) from None

    async def read(self, sql: str, parameters: Parameters = ()) -> list[dict[str, Any]]:
        """`query` off the event loop."""
        return await in_thread(self.query, sql, parameters)

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Counted as a read that goes on."""
        with self._reads_changed:
            self._reads += 1
        try:
            yield
        finally:
            with self._reads_changed:
                self._reads -= 1
                self._reads_changed.notify_all()

    def close(self) -> None:
        """Commit what is queued, wait for reads that nobody waits for any more, and release the file."""
        self._queue.put(None)
        self._writer.join()
        with self._reads_changed:
            self._reads_changed.wait_for(lambda: not self._reads)
        self._connection.close()

    async def _change(self, change: Change | Rows) -> None:
        done: Future[None] = Future()
        done.set_running_or_notify_cancel()  # a caller that stops waiting does not remove its change from the queue
        self._queue.put(_Queued(change if isinstance(change, Rows) else measure(change), current_cost(), done))
        await asyncio.wrap_future(done)

    def _write(self) -> None:
        while (first := self._queue.get()) is not None:
            group = [first]
            while len(group) < MAX_GROUP and not self._queue.empty():
                if (more := self._queue.get()) is None:
                    self._queue.put(None)
                    break
                group.append(more)
            if self._commit(group) is None:
                for queued in group:
                    queued.done.set_result(None)
                continue
            for queued in group:
                if (error := self._commit([queued])) is None:
                    queued.done.set_result(None)
                else:
                    queued.done.set_exception(StoreError(self._failure(error)))

    def _failure(self, error: Exception) -> str:
        """What is wrong with the open database. A fatal error is not the file's: DuckDB refuses all further work of
        this process, and recovers when the file is opened again."""
        if not isinstance(error, duckdb.FatalException):
            return _explain(self.path, error)
        if not self.failed:
            self.failed = True
            log.critical("%s: DuckDB has ended with a fatal error; start the provider again: %s", self.path, error)
        return f"{self.path}: DuckDB has ended with a fatal error; start the provider again ({_first_line(error)})"

    def _commit(self, group: Sequence[_Queued]) -> Exception | None:
        """Make the changes; each is charged for itself, and for its share of what the commit takes."""
        try:
            self._connection.begin()
            make_all(self._connection, [queued.change for queued in group])
            began = time.thread_time()
            self._connection.commit()
            share = (time.thread_time() - began) / len(group)
            for cost in filter(None, (queued.cost for queued in group)):
                cost.add(share)
        except Exception as error:  # noqa: BLE001 - passed to the caller that waits for the change
            try:
                self._connection.rollback()
            except duckdb.Error:
                pass  # a failed commit has rolled back by itself
            return error
        return None


def appending(table: str, columns: Columns) -> Change:
    """The change that appends rows given as columns of equal length. An arrow array sets the type of its column."""
    return executing_with(f"INSERT INTO {table} BY NAME SELECT * FROM batch", columns)


def executing_with(sql: str, columns: Columns) -> Change:
    """The change that executes one statement which reads these columns as the table `batch`."""

    def execute(connection: duckdb.DuckDBPyConnection) -> None:
        # Made here, in the thread of the writer: ten thousand rows would hold up the event loop.
        batch = pa.table({name: v if isinstance(v, pa.Array) else list(v) for name, v in columns.items()})
        connection.register("batch", batch)
        connection.execute(sql)
        connection.unregister("batch")

    return execute


def reading_with(connection: duckdb.DuckDBPyConnection, sql: str, columns: Columns) -> list[tuple[Any, ...]]:
    """Rows of a read within a change, which has these columns as the table `batch`."""
    connection.register("batch", pa.table(dict(columns)))
    rows = connection.execute(sql).fetchall()
    connection.unregister("batch")
    return rows


def executing(sql: str, parameters: Sequence[Any] = ()) -> Change:
    """The change that executes one statement."""
    return lambda connection: connection.execute(sql, list(parameters))


def migrate(connection: duckdb.DuckDBPyConnection, before: int | None = None) -> None:
    """Apply the numbered migrations that are missing; doing it twice changes nothing.

    `before` leaves out the migrations from that number on, as an older release does.
    """
    connection.execute("CREATE TABLE IF NOT EXISTS schema_version (version INTEGER PRIMARY KEY)")
    applied = {row[0] for row in connection.execute("SELECT version FROM schema_version").fetchall()}
    files = resources.files(__package__).joinpath("migrations").iterdir()
    for file in sorted((f for f in files if f.name.endswith(".sql")), key=lambda f: f.name):
        version = int(file.name.partition("_")[0])
        if version not in applied and (before is None or version < before):
            connection.begin()
            connection.execute(file.read_text())
            connection.execute("INSERT INTO schema_version VALUES (?)", [version])
            connection.commit()


def write_out(path: Path) -> None:
    """Put what a provider that was killed has left in `PATH.wal` into the database itself, so that a copy of this file
    is whole. Raises StoreError."""
    if path.exists():
        _check_place(path)
        try:
            duckdb.connect(str(path)).close()  # DuckDB reads the log when it opens, and writes it out when it closes
        except duckdb.Error as error:
            raise StoreError(_explain(path, error)) from None


def _check_place(path: Path) -> None:
    """DuckDB opens the file, and two more beside it, by their names. Raises StoreError."""
    try:
        find_folder(path.absolute().parent)
        open_unshared(path).close()
    except FileNotFoundError:
        return  # a new database; DuckDB says where a folder is missing
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror}") from None
    except UntrustedPathError as error:
        raise StoreError(f"{error}: the database belongs to the provider alone (chown, chmod go-w)") from None


def _explain(path: Path, error: Exception) -> str:
    text = _first_line(error)
    if "Could not set lock" in text or "Conflicting lock" in text:
        holder = f" (pid {found[1]})" if (found := _HOLDER.search(text)) else ""
        return f"{path}: another process has this database open{holder}; one provider owns it, ask that one"
    if any(sign in text.lower() for sign in _SIGNS_OF_CORRUPTION):
        return f"{path}: not a readable DuckDB database, it is corrupt ({text}); restore a copy or use another --db"
    return f"{path}: {text}"


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]
