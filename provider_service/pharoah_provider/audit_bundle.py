"""What an auditor gets to seal an epoch again: seed, plaintext, and the trials the plaintext was learned from."""

from __future__ import annotations

import json
from dataclasses import asdict

from pharoah_provider.store import Store
from pharoah_serving.errors import Unknown
from pharoah_serving.keys import Keys


async def hand_over(store: Store, keys: Keys, number: int) -> str:
    """JSON for `pharoah-auditor replay`. Raises Unknown for an epoch that never was, or whose seed is destroyed."""
    record = await store.epoch(number)
    if record is None or not record["groups"]:
        raise Unknown(f"epoch {number} was not sealed here")
    if not record["seed_kept"]:
        raise Unknown(f"epoch {number} is over for so long that its seed was destroyed")
    release = await store.release(record["release"])
    if release is None:
        raise Unknown(f"release {record['release']} is gone")
    trials = await store.trials(before=await store.release_made_at(release.release))
    return json.dumps(
        {
            "format": 1,
            "epoch": number,
            "seed": keys.epoch_seed(number).hex(),
            "began": record["began"],
            "groups": json.loads(record["groups"]),
            "head": bytes(record["head"]).hex(),
            "signature": bytes(record["signature"]).hex(),
            "release": asdict(release),
            "trials": [asdict(trial) for trial in trials],
            "log": [entry.hex() for entry in await store.log_entries()],
        }
    )
