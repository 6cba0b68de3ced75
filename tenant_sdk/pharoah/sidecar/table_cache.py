"""Whole tables: downloaded once an epoch, kept on disk for all launches of this user, resumed where they broke off."""

from __future__ import annotations

import contextlib
import logging
import time
from pathlib import Path
from typing import Any

from pharoah.sidecar.log_client import ServedEpoch, VerificationError
from pharoah.sidecar.provider_connection import ProviderConnection
from pharoah_protocol.files import write_atomically
from pharoah_protocol.log.checkpoint import log_origin
from pharoah_protocol.log.merkle import root
from pharoah_protocol.rpc import Stub
from pharoah_protocol.tables import signed_messages
from pharoah_protocol.tables.epoch_head import ClassTable, is_signed
from pharoah_protocol.tables.rows import ROW_BYTES, split
from pharoah_protocol.v1 import GetTableRequest

log = logging.getLogger("pharoah.sidecar")

LEFT_SECONDS = 600
"""Seconds; no process writes a file for as long as this."""
SECONDS_PER_MEGABYTE = 5.0
"""Time a table may take beyond one call's deadline."""


class TableCache:
    """Rows by epoch and class, each table checked against its signed head before it is used."""

    def __init__(self, provider: ProviderConnection, folder: Path | None) -> None:
        name = log_origin(provider.key.public_bytes_raw())
        self._provider, self._folder = provider, folder / name if folder else None
        self._stub = Stub(provider.channel, "Exchange")
        self._held: dict[tuple[int, bytes], list[bytes]] = {}

    async def rows(self, served: ServedEpoch, class_id: bytes) -> list[bytes]:
        """All sealed rows of a class. Raises VerificationError, HeadError, AioRpcError."""
        head = served.head
        expected, key = head.table(class_id), (head.epoch, class_id)
        if key not in self._held:
            content = self._read(self._path(*key, ""))
            if not _is_the_one(content, expected):
                content = await self._download(served, expected)
            self._held = {held: rows for held, rows in self._held.items() if held[0] >= head.epoch - 1}
            self._held[key] = split(content)
        return self._held[key]

    async def _download(self, served: ServedEpoch, expected: ClassTable) -> bytes:
        epoch = served.head.epoch
        part = self._path(epoch, expected.class_id, ".part")
        begun = self._read(part)
        content, signature = await self._stream(epoch, expected, begun[: len(begun) // ROW_BYTES * ROW_BYTES])
        if not _is_the_one(content, expected) and begun:
            content, signature = await self._stream(epoch, expected, b"")  # what was begun may have been at fault
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
        self._write(self._path(epoch, expected.class_id, ""), content)
        self._prune(epoch, part)
        return content

    async def _stream(self, epoch: int, expected: ClassTable, begun: bytes) -> tuple[bytes, bytes]:
        """Rows from those that are there on, and the signature over all; what arrives is kept as it comes."""
        size, content, signature = expected.rows * ROW_BYTES, bytearray(begun), b""
        request = GetTableRequest(epoch=epoch, class_id=expected.class_id, first_row=min(len(begun), size) // ROW_BYTES)
        seconds = self._provider.timeout + SECONDS_PER_MEGABYTE * size / 1e6
        call: Any = self._stub.GetTable(request, timeout=seconds, metadata=self._provider.metadata)
        try:
            async for chunk in call:
                content += chunk.rows
                signature = chunk.signature or signature
                if len(content) > size:
                    raise VerificationError("table: longer than in the signed head")
        except BaseException:
            self._write(self._path(epoch, expected.class_id, ".part"), bytes(content))
            raise
        return bytes(content), signature

    def _path(self, epoch: int, class_id: bytes, suffix: str) -> Path | None:
        return self._folder / f"{epoch}-{class_id.hex()}.rows{suffix}" if self._folder else None

    def _read(self, path: Path | None) -> bytes:
        try:
            return path.read_bytes() if path else b""
        except OSError:
            return b""

    def _write(self, path: Path | None, content: bytes) -> None:
        """A disk that is full costs a download, nothing else."""
        if path is None or not content:
            return
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_atomically(path, content)
        except OSError as error:
            log.info("a table is not kept: %s", error)

    def _prune(self, epoch: int, part: Path | None) -> None:
        """Tables of epochs that are over, the beginning of what is now whole, and leavings of killed sidecars."""
        for path in self._folder.glob("*-*.*") if self._folder else ():
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
