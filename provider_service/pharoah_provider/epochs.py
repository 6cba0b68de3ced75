"""Epochs: a release sealed under a fresh seed. Deterministic from release and seed, but for the padding."""

from __future__ import annotations

import hmac
import time
from dataclasses import dataclass

from pharoah.exchange import voprf
from pharoah.exchange.head import ClassTable, EpochHead, merkle_root, sign_head
from pharoah.exchange.rows import VerdictRow, seal_table
from pharoah_archetypes import canonical_input
from pharoah_archetypes.ladder import lp
from pharoah_provider.domain import LearnedRow, Release
from pharoah_provider.keys import KeyFolder

LIFETIME_SECONDS = 25 * 3600
"""24 hours and one of grace."""
CLOCK_SKEW_SECONDS = 60


@dataclass(frozen=True)
class SealedClass:
    class_id: bytes
    secret: bytes
    rows: list[bytes]


@dataclass(frozen=True)
class Epoch:
    """What the exchange serves: the signed head and, per class, key and rows."""

    head: EpochHead
    body: bytes
    signature: bytes
    classes: dict[bytes, SealedClass]
    ids: dict[tuple[str, str], bytes]
    """(scope, group) to class handle; a group nothing is known of has an empty table like any other."""


def seal(
    release: Release, epoch: int, keys: KeyFolder, groups: set[tuple[str, str]], now: float | None = None
) -> Epoch:
    """Seal a release for these (scope, group) pairs and those it has rows for."""
    seed, began = keys.epoch_seed(epoch), int(time.time() if now is None else now)
    groups = groups | {(row.scope, row.group_id) for row in release.rows}
    classes: dict[bytes, SealedClass] = {}
    ids: dict[tuple[str, str], bytes] = {}
    tables: list[ClassTable] = []
    for scope, group_id in sorted(groups):
        class_id = hmac.digest(seed, lp(b"pharoah/class/v1", scope.encode(), group_id.encode()), "sha256")[:16]
        secret, public = voprf.derive_key(seed, lp(b"pharoah/voprf/v1", epoch.to_bytes(8, "big"), class_id))
        entries = [
            (voprf.full_evaluate(secret, canonical_input("arch", row.rung, row.tokens)), _verdict(row))
            for row in release.rows
            if (row.scope, row.group_id) == (scope, group_id)
        ]
        rows = seal_table(entries, epoch, class_id)
        classes[class_id] = SealedClass(class_id, secret, rows)
        ids[scope, group_id] = class_id
        tables.append(ClassTable(class_id, public, len(rows), merkle_root(rows)))
    # Ordered by handle, which is random: the order of contexts tells nothing.
    tables.sort(key=lambda table: table.class_id)
    head = EpochHead(epoch, release.release, began - CLOCK_SKEW_SECONDS, began + LIFETIME_SECONDS, tuple(tables))
    body, signature = sign_head(head, keys.signing_key())
    return Epoch(head, body, signature, classes, ids)


def _verdict(row: LearnedRow) -> VerdictRow:
    return VerdictRow(
        row.severity,
        row.outcome,
        row.rung,
        row.failures,
        row.runs,
        row.base_failures,
        row.base_runs,
        row.remedy,
        row.confidence,
    )
