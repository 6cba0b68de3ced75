"""What an auditor needs to seal an epoch again: its seed, the release, and the trials the release was learned from."""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict
from typing import Any

from pharoah_protocol.log.forgotten import list_logged_changes
from pharoah_protocol.log.view import HEAD, Entry
from pharoah_provider.storage.base import Storage
from pharoah_serving.errors import Unknown
from pharoah_serving.keys import Keys

FORMAT = 6
"""Version of the JSON; `pharoah_auditor.replay` reads this one. Increase it with every change of a field."""


async def audit_bundle(store: Storage, keys: Keys, number: int) -> str:
    """JSON for `pharoah-auditor replay`. Raises Unknown for an epoch that was not sealed or whose seed is destroyed."""
    record = await store.published.epoch(number)
    if record is None or not record.groups:
        raise Unknown(f"epoch {number} was not sealed here")
    if not record.seed_kept:
        raise Unknown(f"epoch {number} is past its audit retention: its seed was destroyed")
    release = await store.published.release(record.release)
    if release is None:
        raise Unknown(f"release {record.release} is not in the database")
    made_at = await store.published.release_made_at(release.release)
    seed = await asyncio.to_thread(keys.epoch_seed, number)  # a key service may take its time
    log = await store.log.log_entries()
    changes = len(list_logged_changes(log, Entry.from_body(HEAD, number, record.head)))
    content = {
        "format": FORMAT,
        "epoch": number,
        "seed": seed.hex(),
        "began": record.began,
        "groups": record.groups,
        "head": record.head.hex(),
        "signature": record.signature.hex(),
        "release": release,
        "trials": await store.evidence.trials(before=made_at),
        "learned_at": made_at,
        "forgotten": (await store.log.list_forgotten())[:changes],
        "imported": [
            {"provider": one.provider, "key": one.key.hex(), "content": one.content}
            for one in await store.imports.imports(made_at)
        ],
        "log": [entry.hex() for entry in log],
    }
    return await asyncio.to_thread(_encode, content)


def _encode(content: dict[str, Any]) -> str:
    """JSON. The trials of a large provider take seconds to encode, so that a thread does it."""
    lists = {name: [asdict(one) for one in content[name]] for name in ("trials", "forgotten")}
    return json.dumps({**content, **lists, "release": asdict(content["release"])})
