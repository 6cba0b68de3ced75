"""What `Operator.ShowRow` answers: one row of the newest release with its evidence, as JSON."""

from __future__ import annotations

import asyncio
import math
from dataclasses import asdict
from typing import Any

from pharoah_learning.context_evidence import in_contexts
from pharoah_learning.evidence import LeftOut, Trial
from pharoah_learning.models.matched_pairs import MatchedPairs
from pharoah_learning.models.proportions import wilson
from pharoah_learning.release import LearnedRow, Release
from pharoah_learning.row_evidence import RowEvidence, evidence_of
from pharoah_learning.usable_trials import usable_trials
from pharoah_learning.wrong_trials import mark_wrong
from pharoah_provider.storage.base import Storage
from pharoah_serving.errors import Invalid, NotReady


async def row_display(store: Storage, row_id: str) -> dict[str, Any]:
    """A row of the newest release with its runs. Raises NotReady without a release, and Invalid for another row."""
    release = await store.published.newest_release()
    if release is None:
        raise NotReady("nothing was learned yet: run a campaign, then `pharoah-provider learn`")
    row = next((one for one in release.rows if one.id == row_id), None)
    if row is None:
        raise Invalid(
            f"row {row_id!r} is not in release {release.release}; `pharoah-provider table` and "
            "`pharoah-provider near-duplicates` list the ids"
        )
    trials = await store.evidence.trials(before=await store.published.release_made_at(release.release))
    found = await asyncio.to_thread(_evidence, row, release, trials)
    rule, nodes = release.context_rule, await store.nodes.nodes()
    groups = {node.node: (rule.context_of(node.server_facts), node.device_id) for node in nodes}
    return {
        "id": row.id,
        "release": release.release,
        "revoked": row.id in await store.log.list_revoked_ids(),
        "nodes": sorted(name for name, own in groups.items() if row.group_id in own),
        **asdict(row),
        **_render(found),
    }


def _evidence(row: LearnedRow, release: Release, trials: list[Trial]) -> RowEvidence:
    """The evidence of a row, from the trials as learning marked them. The release has the rule of contexts, so that
    nothing needs to be learned again."""
    usable = mark_wrong(usable_trials(trials, LeftOut()))
    return evidence_of(row, in_contexts(usable, release.context_rule), release.returned)


def _render(found: RowEvidence) -> dict[str, Any]:
    return {
        "rate": wilson(found.row.failures, found.row.runs),
        "base_rate": wilson(found.row.base_failures, found.row.base_runs),
        "odds_ratio": {name: _finite(value) for name, value in found.odds._asdict().items()},
        "blocks": _blocks(found.blocks) | {"e_value": found.e_value},
        "trials": [_trial(trial) for trial in found.trials],
        "controls": [_trial(trial) for trial in found.controls],
    }


def _blocks(blocks: MatchedPairs) -> dict[str, Any]:
    return {
        **blocks._asdict(),
        "net_outcome": blocks.net_outcome,
        "sensitivity": blocks.sensitivity,
    }


def _trial(trial: Trial) -> dict[str, Any]:
    names = ("trial_id", "node", "block", "ran_at", "outcome", "workload", "settings", "context_id")
    return {name: getattr(trial, name) for name in names}


def _finite(value: float) -> float | None:
    """JSON has neither infinity nor NaN: None stands for both."""
    return value if math.isfinite(value) else None
