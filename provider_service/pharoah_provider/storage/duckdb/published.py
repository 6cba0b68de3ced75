"""Releases and epochs."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from pharoah_learning.release import Release, SealInputs
from pharoah_provider.storage.duckdb.database import Database, Statement
from pharoah_provider.storage.duckdb.log import put_entries, put_revoked_row
from pharoah_provider.storage.duckdb.statements import statements
from pharoah_provider.storage.records import EpochRecord, SignedHead
from pharoah_serving.costs import in_thread

SQL = statements("published")


class DuckPublishedStore:
    """See `storage.base.PublishedStore`."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def put_release(self, release: Release, made_at: float | None = None) -> None:
        made_at = time.time() if made_at is None else made_at
        content = await in_thread(_content, release)
        await self._db.execute(SQL["put_release"], [release.release, made_at, content])

    async def newest_release(self) -> Release | None:
        return await in_thread(_release, await self._db.read(SQL["newest_release"]))

    async def release(self, number: int) -> Release | None:
        return await in_thread(_release, await self._db.read(SQL["release"], [number]))

    async def release_made_at(self, number: int) -> float:
        rows = await self._db.read(SQL["release_made_at"], [number])
        return float(rows[0]["made_at"]) if rows else 0.0

    async def last_release_number(self) -> int:
        return int((await self._db.read(SQL["last_release_number"]))[0]["last"])

    async def release_before(self, number: int) -> Release | None:
        return await in_thread(_release, await self._db.read(SQL["release_before"], [number]))

    async def roll_back_release(self, number: int) -> None:
        await self._db.execute(SQL["roll_back_release"], [number])

    async def put_epoch(
        self,
        recipe: SealInputs,
        sealed: SignedHead,
        revoked: Sequence[bytes],
        position: int,
        entries: Sequence[bytes],
    ) -> None:
        head, body, signature = sealed
        values = [head.epoch, head.release, head.not_before, head.not_after, body, signature, recipe.groups_json()]
        await self._db.execute_all(
            Statement(sql=SQL["put_epoch"], parameters=[*values, recipe.began]),
            *(put_revoked_row(head.epoch, head.release, row) for row in revoked),
            *put_entries(position, entries),
        )

    async def epoch(self, number: int) -> EpochRecord | None:
        rows = await self._db.read(SQL["epoch"], [number])
        return _epoch(rows[0]) if rows else None

    async def newest_epochs(self, count: int) -> list[EpochRecord]:
        return [_epoch(row) for row in await self._db.read(SQL["newest_epochs"], [count])]

    async def seeds_before(self, began: float) -> list[int]:
        return [int(row["epoch"]) for row in await self._db.read(SQL["seeds_before"], [began])]

    async def put_seed_destroyed(self, epoch: int) -> None:
        await self._db.execute(SQL["put_seed_destroyed"], [epoch])


def _content(release: Release) -> str:
    return json.dumps(asdict(release))


def _release(rows: list[dict[str, Any]]) -> Release | None:
    return Release.from_dict(json.loads(rows[0]["content"])) if rows else None


def _epoch(row: dict[str, Any]) -> EpochRecord:
    return EpochRecord(
        epoch=int(row["epoch"]),
        release=int(row["release"]),
        began=int(row["began"] or 0),
        groups=SealInputs.groups_of(row["groups"] or "[]"),
        head=bytes(row["head"]),
        signature=bytes(row["signature"]),
        seed_kept=bool(row["seed_kept"]),
    )
