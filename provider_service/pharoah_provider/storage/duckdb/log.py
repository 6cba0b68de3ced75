"""The transparency log, its checkpoint, revoked rows and forgotten evidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pharoah_protocol.log.forgotten import ForgetChange, ForgetKind
from pharoah_provider.storage.duckdb.database import Database, Statement
from pharoah_provider.storage.duckdb.statements import statements

SQL = statements("log")


class DuckLogStore:
    """See `storage.base.LogStore`."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def log_entries(self) -> list[bytes]:
        return [bytes(row["entry"]) for row in await self._db.read(SQL["log_entries"])]

    async def put_log_entries(self, position: int, entries: Sequence[bytes]) -> None:
        await self._db.execute_all(*put_entries(position, entries))

    async def put_checkpoint(self, note: bytes) -> None:
        await self._db.execute(SQL["put_checkpoint"], [note])

    async def checkpoint(self) -> bytes:
        rows = await self._db.read(SQL["checkpoint"])
        return bytes(rows[0]["note"]) if rows else b""

    async def put_revoked(
        self, epoch: int, release: int, rows: Mapping[str, bytes], position: int, entry: bytes
    ) -> None:
        changes = [put_revoked_row(epoch, release, row, name) for name, row in sorted(rows.items())]
        await self._db.execute_all(*changes, *put_entries(position, [entry]))

    async def list_revoked(self, epoch: int) -> list[bytes]:
        return [bytes(row["sealed_row"]) for row in await self._db.read(SQL["revoked"], [epoch])]

    async def list_revoked_ids(self) -> list[str]:
        return [str(row["row_id"]) for row in await self._db.read(SQL["revoked_ids"])]

    async def keep_revoked(self, epoch: int, rows: Mapping[str, bytes]) -> None:
        await self._db.execute_all(
            *(Statement(sql=SQL["keep_revoked"], parameters=[name, epoch, row]) for name, row in rows.items())
        )

    async def reinstate(self, ids: Sequence[str]) -> None:
        await self._db.execute_all(*(Statement(sql=SQL["reinstate"], parameters=[name]) for name in ids))

    async def put_forgotten(self, change: ForgetChange, position: int, entry: bytes) -> None:
        values = [change.kind, change.name, change.at, change.undone]
        await self._db.execute_all(
            Statement(sql=SQL["put_forgotten"], parameters=values), *put_entries(position, [entry])
        )

    async def list_forgotten(self, before: float = float("inf")) -> list[ForgetChange]:
        return [
            ForgetChange(ForgetKind(row["kind"]), row["name"], row["changed_at"], row["undone"])
            for row in await self._db.read(SQL["forgotten"], [before])
        ]


def put_entries(position: int, entries: Sequence[bytes]) -> list[Statement]:
    """Statements that store entries of the log from this position on."""
    return [
        Statement(sql=SQL["put_log_entry"], parameters=[position + offset, entry])
        for offset, entry in enumerate(entries)
    ]


def put_revoked_row(epoch: int, release: int, row: bytes, row_id: str = "") -> Statement:
    """The statement that stores a revoked row; without an id it is revoked in this epoch alone."""
    return Statement(sql=SQL["put_revoked_row"], parameters=[epoch, row, release, row_id])
