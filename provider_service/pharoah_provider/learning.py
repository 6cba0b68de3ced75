"""The command `learn`: make the next release from all stored evidence."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from pharoah_learning.baselines import learn_baselines
from pharoah_learning.incompatibility import learn_incompatibilities
from pharoah_learning.monitoring_plans import learn_plans
from pharoah_learning.near_duplicates import learn_near_duplicates
from pharoah_learning.release import Release, SealInputs
from pharoah_learning.sealing import groups_of, seal
from pharoah_learning.shared_outcomes import learn_shared_outcomes
from pharoah_learning.survival import fit_survival
from pharoah_protocol.pseudonyms import period_at
from pharoah_provider.storage.base import Storage
from pharoah_serving.errors import NotReady, ProviderError


async def learn(store: Storage) -> AsyncIterator[str | Release]:
    """Learn a release and store it; yields a line of text for each step, and the release at the end.

    Raises NotReady without any trial, and ProviderError for a release that cannot be sealed; it is not stored.
    """
    read_at = time.time()
    trials = await store.evidence.trials(before=read_at)
    if not trials:
        raise NotReady("nothing to learn from: run a campaign first (pharoah-provider campaign FILE)")
    rows = await asyncio.to_thread(learn_incompatibilities, trials)
    found = sum(row.severity == "block" and row.rung == "exact" and row.scope == "server" for row in rows)
    yield f"table: {len(rows)} rows from {len(trials)} trials; {found} exact incompatibilities"
    rows = await asyncio.to_thread(learn_plans, rows, trials)
    bands = await asyncio.to_thread(learn_near_duplicates, rows, trials)
    yield f"near duplicates: {len(bands)} rows"
    names = learn_shared_outcomes(await store.evidence.outcome_reports(period_at(time.time())))
    yield f"outcomes that tenants share: {len(names)} rows"
    survival, note = await asyncio.to_thread(fit_survival, await store.evidence.degraded_runs())
    yield note
    baselines = learn_baselines(await store.evidence.baseline_probes())
    yield f"baselines: {len(baselines)} (node x benchmark x load)"
    number = await store.published.last_release_number() + 1
    release = Release(number, (*rows, *bands, *names), survival, tuple(baselines), (note,))
    inputs = SealInputs(0, release, tuple(groups_of(release.rows)), int(read_at))
    try:
        # A release that cannot be sealed, for example with two rows for one input, must be found before it is stored.
        await asyncio.to_thread(seal, inputs, bytes(32), Ed25519PrivateKey.generate())
    except ValueError as error:
        raise ProviderError(f"release {number} cannot be sealed and was not stored: {error}") from None
    await store.published.put_release(release, read_at)
    yield release
