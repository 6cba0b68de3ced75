"""What was published: releases, epochs, the transparency log, rows that were taken back."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from pharoah_learning.release import Release, SealInputs
from pharoah_protocol.tables.epoch_head import EpochHead
from pharoah_provider.store.database import Database


class Published:
    """Part of the store. Writes return once committed; raises StoreError."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def put_release(self, release: Release, made_at: float | None = None) -> None:
        """`made_at`: when what it was learned from was read."""
        made_at = time.time() if made_at is None else made_at
        await self._db.execute(
            "INSERT INTO releases VALUES (?,?,?,FALSE)", [release.release, made_at, json.dumps(asdict(release))]
        )

    async def newest_release(self) -> Release | None:
        """The newest that was not taken back."""
        rows = await self._db.read("SELECT content FROM releases WHERE NOT withdrawn ORDER BY release DESC LIMIT 1")
        return Release.from_dict(json.loads(rows[0]["content"])) if rows else None

    async def release(self, number: int) -> Release | None:
        rows = await self._db.read("SELECT content FROM releases WHERE release = ?", [number])
        return Release.from_dict(json.loads(rows[0]["content"])) if rows else None

    async def release_made_at(self, number: int) -> float:
        rows = await self._db.read("SELECT made_at FROM releases WHERE release = ?", [number])
        return float(rows[0]["made_at"]) if rows else 0.0

    async def epoch(self, number: int) -> dict[str, Any] | None:
        rows = await self._db.read("SELECT * FROM epochs WHERE epoch = ?", [number])
        return rows[0] if rows else None

    async def last_release_number(self) -> int:
        """0 before the first; releases that were taken back count."""
        return int((await self._db.read("SELECT coalesce(max(release), 0) AS last FROM releases"))[0]["last"])

    async def release_before(self, number: int) -> Release | None:
        rows = await self._db.read(
            "SELECT content FROM releases WHERE release < ? AND NOT withdrawn ORDER BY release DESC LIMIT 1", [number]
        )
        return Release.from_dict(json.loads(rows[0]["content"])) if rows else None

    async def withdraw_release(self, number: int) -> None:
        await self._db.execute("UPDATE releases SET withdrawn = TRUE WHERE release = ?", [number])

    async def put_epoch(
        self,
        recipe: SealInputs,
        sealed: tuple[EpochHead, bytes, bytes],
        revoked: Sequence[bytes],
        position: int,
        entries: Sequence[bytes],
    ) -> None:
        """An epoch (head, body, signature), those of its rows that no longer hold, and its entries in the log: all or
        nothing."""
        head, body, signature = sealed
        values = [head.epoch, head.release, head.not_before, head.not_after, body, signature, recipe.groups_json()]
        await self._db.execute_all(
            ("INSERT INTO epochs VALUES (?,?,?,?,?,?,?,?,TRUE)", [*values, recipe.began]),
            *(("INSERT INTO revoked VALUES (?,?,?,'')", [head.epoch, row, head.release]) for row in revoked),
            *_log_rows(position, entries),
        )

    async def newest_epochs(self, count: int) -> list[dict[str, Any]]:
        """Newest first."""
        return await self._db.read("SELECT * FROM epochs ORDER BY epoch DESC LIMIT ?", [count])

    async def seeds_before(self, began: float) -> list[int]:
        """Epochs that began before then and whose seed is still kept."""
        rows = await self._db.read("SELECT epoch FROM epochs WHERE began < ? AND seed_kept ORDER BY epoch", [began])
        return [int(row["epoch"]) for row in rows]

    async def put_seed_destroyed(self, epoch: int) -> None:
        await self._db.execute("UPDATE epochs SET seed_kept = FALSE WHERE epoch = ?", [epoch])

    async def log_entries(self) -> list[bytes]:
        return [bytes(row["entry"]) for row in await self._db.read("SELECT entry FROM log ORDER BY position")]

    async def put_log_entries(self, position: int, entries: Sequence[bytes]) -> None:
        """From this position on, all or none."""
        await self._db.execute_all(*_log_rows(position, entries))

    async def put_revoked(
        self, epoch: int, release: int, rows: Mapping[str, bytes], position: int, entry: bytes
    ) -> None:
        """Revoked rows, by id, and their entry in the log, both or neither."""
        changes = [
            ("INSERT INTO revoked VALUES (?,?,?,?)", [epoch, row, release, name]) for name, row in sorted(rows.items())
        ]
        await self._db.execute_all(*changes, *_log_rows(position, [entry]))

    async def revoked_ids(self) -> list[str]:
        """Rows that were taken back, in whichever epoch, and not given back since."""
        rows = await self._db.read("SELECT DISTINCT row_id FROM revoked WHERE row_id != ''")
        return [str(row["row_id"]) for row in rows]

    async def keep_revoked(self, epoch: int, rows: Mapping[str, bytes]) -> None:
        """Rows of an epoch, by id, that no longer hold in epochs to come either."""
        mark = "UPDATE revoked SET row_id = ? WHERE epoch = ? AND sealed_row = ?"
        await self._db.execute_all(*((mark, [name, epoch, row]) for name, row in rows.items()))

    async def give_back(self, ids: Sequence[str]) -> None:
        """Rows that hold again in epochs to come."""
        await self._db.execute_all(*(("UPDATE revoked SET row_id = '' WHERE row_id = ?", [name]) for name in ids))

    async def put_checkpoint(self, note: bytes) -> None:
        """The newest, with its cosignatures."""
        await self._db.execute("INSERT OR REPLACE INTO checkpoint VALUES (1,?)", [note])

    async def checkpoint(self) -> bytes:
        """Empty before the first."""
        rows = await self._db.read("SELECT note FROM checkpoint")
        return bytes(rows[0]["note"]) if rows else b""

    async def revoked(self, epoch: int) -> list[bytes]:
        rows = await self._db.read("SELECT sealed_row FROM revoked WHERE epoch = ?", [epoch])
        return [bytes(row["sealed_row"]) for row in rows]


def _log_rows(position: int, entries: Sequence[bytes]) -> list[tuple[str, Sequence[Any]]]:
    return [("INSERT INTO log VALUES (?,?)", [position + at, entry]) for at, entry in enumerate(entries)]
