"""Export and import of portable tables: what `Operator.ExportTable` and `Operator.ImportTable` do."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from typing import NamedTuple

from pharoah_learning.portable_table import (
    MAX_BYTES,
    Imported,
    PortableTable,
    exportable,
    read_table,
    write_table,
)
from pharoah_provider.storage.base import Storage
from pharoah_provider.storage.records import ImportedTable
from pharoah_serving.errors import Invalid, NotReady
from pharoah_serving.keys import Keys
from pharoah_serving.reading_processes import ReadingProcesses, Unreadable

MAX_NAME_LENGTH = 64


class ExportedTable(NamedTuple):
    """A signed table."""

    content: str
    rows: int
    """How many rows it has."""


class ImportedRows(NamedTuple):
    """How much a table brings."""

    rows: int
    applicable: int
    """About device models that nodes here have."""


async def export_table(store: Storage, keys: Keys) -> ExportedTable:
    """The signed rows of the newest release about device models. Raises NotReady without any."""
    release = await store.published.newest_release()
    if release is None:
        raise NotReady("nothing was learned yet: run a campaign, then `pharoah-provider learn`")
    devices = {node.device_id: node.device_facts for node in await store.nodes.nodes()}
    revoked = set(await store.log.list_revoked_ids())
    rows = tuple(row for row in exportable(release.rows, devices) if row.id not in revoked)
    if not rows:
        raise NotReady(f"release {release.release} has no row about a device model that a node here has")
    used = {row.group_id for row in rows}
    described = {name: tuple(facts) for name, facts in devices.items() if name in used}
    made_at = await store.published.release_made_at(release.release)
    content = write_table(PortableTable(release.release, made_at, described, rows), keys.signing_key)
    if len(content) > MAX_BYTES:
        raise NotReady(f"{len(rows)} rows take {len(content):,} bytes, and at most {MAX_BYTES:,} can be imported")
    return ExportedTable(content, len(rows))


async def import_table(store: Storage, keys: Keys, imported: ImportedTable, reading: ReadingProcesses) -> ImportedRows:
    """Store a table of another provider. Raises Invalid for one that the given key has not signed, or with an error."""
    _check_name(imported.provider)
    if imported.key == keys.public:
        raise Invalid("key: this is our own key; the rows of our own trials are in the table already")
    counted = await _count(store, imported, reading)
    await store.imports.put_import(imported, time.time())
    return counted


async def remove_import(store: Storage, provider: str, reading: ReadingProcesses) -> ImportedRows:
    """Use the table of a provider no longer, from the next learning on. Raises Invalid when there is none."""
    stored = next((one for one in await store.imports.imports() if one.provider == provider), None)
    if stored is None:
        raise Invalid(f"provider: there is no imported table of {provider!r}")
    counted = await _count(store, stored, reading)
    await store.imports.remove_import(provider, time.time())
    return counted


def tables_of(stored: Iterable[ImportedTable]) -> list[Imported]:
    """The tables that were imported; they were checked then."""
    return [Imported(one.provider, read_table(one.content, one.key)) for one in stored]


async def _count(store: Storage, table: ImportedTable, reading: ReadingProcesses) -> ImportedRows:
    """Raises Invalid for a table that the key has not signed, or with an error."""
    try:
        (found,) = await reading.read("portable_table", table.content.encode(), table.key)
    except Unreadable as error:
        raise Invalid(f"content: {error}") from None
    here, rows = {node.device_id for node in await store.nodes.nodes()}, json.loads(found)
    return ImportedRows(sum(rows.values()), sum(count for device, count in rows.items() if device in here))


def _check_name(name: str) -> None:
    if not name or len(name) > MAX_NAME_LENGTH or not name.isprintable():
        raise Invalid(f"provider: expected a name of 1 to {MAX_NAME_LENGTH} printable characters")
