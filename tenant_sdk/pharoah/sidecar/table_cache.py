"""Whole tables: downloaded once an epoch, kept on disk for all launches of this user, resumed where they broke off.

A provider decides how many tables there are and how large they are. So at most four are kept, the newest ones, and the
size that the signed head states is checked before a byte of a table is asked for.
"""

from __future__ import annotations

import contextlib
import logging
import time
from pathlib import Path
from typing import Any

from pharoah.sidecar.bounded_folder import Bound, make_room
from pharoah.sidecar.file_work import FileWork
from pharoah.sidecar.log_client import ServedEpoch, VerificationError
from pharoah.sidecar.message_times import MessageTimes
from pharoah.sidecar.provider_connection import CALL_DEADLINE_SECONDS, ProviderConnection
from pharoah_protocol.log.checkpoint import log_origin
from pharoah_protocol.log.merkle import root
from pharoah_protocol.rpc import Stub
from pharoah_protocol.tables import signed_messages
from pharoah_protocol.tables.epoch_head import MAX_ROWS, ClassTable, is_signed
from pharoah_protocol.tables.rows import ROW_BYTES, split
from pharoah_protocol.v1 import GetTableRequest
from pharoah_system.files import write_atomically
from pharoah_system.trusted_paths import find_folder, make_folder

log = logging.getLogger("pharoah.sidecar")

TABLES = Bound(most_files=4, most_bytes=64 << 20)
"""Two classes of this epoch and of the one before it. The largest table has 16 MiB (`epoch_head.MAX_ROWS`)."""
LEFT_SECONDS = 600
"""Seconds; no process writes a file for as long as this."""
SECONDS_PER_MEGABYTE = 5.0
"""Time that a table may take beyond the user's time for one call."""


class TableCache:
    """Rows by epoch and class, each table checked against its signed head before it is used."""

    def __init__(self, provider: ProviderConnection, folder: Path | None, files: FileWork) -> None:
        """`files` does the work on files of the folder; None for the folder keeps nothing."""
        name = log_origin(provider.key.public_bytes_raw())
        self._provider, self._folder = provider, folder / name if folder else None
        self._files = files
        self._stub = Stub(provider.channel, "Exchange")
        self._held: dict[tuple[int, bytes], list[bytes]] = {}

    async def rows(self, served: ServedEpoch, class_id: bytes, times: MessageTimes) -> list[bytes]:
        """All sealed rows of a class; `times` has the times of the messages that download them.

        Raises VerificationError, HeadError, AioRpcError.
        """
        head = served.head
        expected, key = head.table(class_id), (head.epoch, class_id)
        if key not in self._held:
            if expected.rows > MAX_ROWS:
                raise VerificationError(f"table: {expected.rows} rows, at most {MAX_ROWS} are accepted")
            content = await self._read_kept(self._path(*key, ""))
            if not _is_the_one(content, expected):
                content = await self._download(served, expected, times)
            recent = [(held, rows) for held, rows in self._held.items() if held[0] >= head.epoch - 1]
            self._held = dict(recent[1 - TABLES.most_files :])
            self._held[key] = split(content)
        return self._held[key]

    async def _download(self, served: ServedEpoch, expected: ClassTable, times: MessageTimes) -> bytes:
        epoch = served.head.epoch
        part = self._path(epoch, expected.class_id, ".part")
        begun = await self._read_kept(part)
        whole_rows = begun[: len(begun) // ROW_BYTES * ROW_BYTES]
        content, signature = await self._stream(epoch, expected, whole_rows, times)
        if not _is_the_one(content, expected) and begun:
            content, signature = await self._stream(epoch, expected, b"", times)  # what was begun may be at fault
        if not _is_the_one(content, expected):
            statement = signed_messages.table(epoch, expected.class_id, content)
            signed = is_signed(statement, signature, self._provider.key)
            evidence = {
                "kind": "table",
                "head": served.body.hex(),
                "head_signature": served.signature.hex(),
                "class": expected.class_id.hex(),
                "content": content.hex(),
                "signature": signature.hex(),
            }
            raise VerificationError("table: not the one the signed head commits to", evidence if signed else None)
        with contextlib.suppress(TimeoutError):
            await self._files.result(lambda: self._keep(epoch, self._path(epoch, expected.class_id, ""), content, part))
        return content

    async def _stream(self, epoch: int, expected: ClassTable, begun: bytes, times: MessageTimes) -> tuple[bytes, bytes]:
        """Rows from those that are there on, and the signature over all; what arrives is kept as it comes."""
        size, content, signature = expected.rows * ROW_BYTES, bytearray(begun), b""
        request = GetTableRequest(epoch=epoch, class_id=expected.class_id, first_row=min(len(begun), size) // ROW_BYTES)
        await times.turn()
        try:
            async with self._provider.waiting(self._provider.timeout + SECONDS_PER_MEGABYTE * size / 1e6):
                call: Any = self._stub.GetTable(
                    request, timeout=CALL_DEADLINE_SECONDS, metadata=self._provider.metadata
                )
                async for chunk in call:
                    content += chunk.rows
                    signature = chunk.signature or signature
                    if len(content) > size:
                        content.clear()
                        raise VerificationError("table: longer than in the signed head")
        except BaseException:
            self._files.begin(lambda: self._write(self._path(epoch, expected.class_id, ".part"), bytes(content)))
            raise
        finally:
            times.note_answer()
        return bytes(content), signature

    def _path(self, epoch: int, class_id: bytes, suffix: str) -> Path | None:
        return self._folder / f"{epoch}-{class_id.hex()}.rows{suffix}" if self._folder else None

    async def _read_kept(self, path: Path | None) -> bytes:
        """The content of a file; empty also where the file system does not answer in time."""
        with contextlib.suppress(TimeoutError):
            return await self._files.result(lambda: self._read(path))
        return b""

    def _keep(self, epoch: int, path: Path | None, content: bytes, part: Path | None) -> None:
        self._discard(epoch, part)
        self._write(path, content)

    def _read(self, path: Path | None) -> bytes:
        """Empty without a file, for one that is larger than a table can be, and where others can change the folder."""
        try:
            if path is None:
                return b""
            find_folder(path.parent)
            if path.stat().st_size > MAX_ROWS * ROW_BYTES:
                return b""
            return path.read_bytes()
        except OSError:
            return b""

    def _write(self, path: Path | None, content: bytes) -> None:
        """A disk that is full costs a download, nothing else. The oldest tables make room."""
        if path is None or not content:
            return
        try:
            make_folder(path.parent)
            others = [other for other in path.parent.glob("*-*.rows*") if other != path]
            if make_room(others, TABLES, new_bytes=len(content)):
                write_atomically(path, content)
        except OSError as error:
            log.info("a table is not kept: %s", error)

    def _discard(self, epoch: int, part: Path | None) -> None:
        """Delete tables of epochs that are over, the beginning of a table that is now whole, and scratch files."""
        try:
            paths = list(find_folder(self._folder).glob("*-*.*")) if self._folder else []
        except OSError as error:
            log.info("old tables cannot be looked for: %s", error)
            return
        for path in paths:
            number, unfinished = path.name.partition("-")[0], path.name.startswith(".")
            if unfinished:
                outdated = _is_old(path)
            else:
                outdated = not number.isdecimal() or int(number) < epoch - 1 or path == part
            if outdated:
                with contextlib.suppress(OSError):
                    path.unlink()


def _is_old(path: Path) -> bool:
    with contextlib.suppress(OSError):
        return time.time() - path.stat().st_mtime > LEFT_SECONDS
    return False


def _is_the_one(content: bytes, expected: ClassTable) -> bool:
    return len(content) == expected.rows * ROW_BYTES and root(split(content)) == expected.root
