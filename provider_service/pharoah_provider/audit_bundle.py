"""What an auditor needs to seal an epoch again: its seed, the release, and the trials the release was learned from."""

from __future__ import annotations

import json
from dataclasses import asdict

from pharoah_provider.storage.base import Storage
from pharoah_serving.errors import Unknown
from pharoah_serving.keys import Keys

FORMAT = 5
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
    trials = await store.evidence.trials(before=made_at)
    return json.dumps(
        {
            "format": FORMAT,
            "epoch": number,
            "seed": keys.epoch_seed(number).hex(),
            "began": record.began,
            "groups": record.groups,
            "head": record.head.hex(),
            "signature": record.signature.hex(),
            "release": asdict(release),
            "trials": [asdict(trial) for trial in trials],
            "forgotten": [asdict(change) for change in await store.log.forgotten(made_at)],
            "imported": [
                {"provider": one.provider, "key": one.key.hex(), "content": one.content}
                for one in await store.imports.imports(made_at)
            ],
            "log": [entry.hex() for entry in await store.log.log_entries()],
        }
    )
