"""Epochs: a release sealed under a fresh seed. Deterministic: the same inputs and seed give the same bytes."""

from __future__ import annotations

import hmac
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from pharoah_archetypes import canonical_input
from pharoah_archetypes.ladder import length_prefixed
from pharoah_learning.context_rule import ContextRule, KnownContext
from pharoah_learning.release import ClassKey, LearnedRow, SealInputs
from pharoah_protocol.bounds import MAX_INPUT_BYTES
from pharoah_protocol.log.merkle import root
from pharoah_protocol.monitoring_plan import PLAIN
from pharoah_protocol.tables import signed_messages
from pharoah_protocol.tables.epoch_head import ClassTable, EpochHead, sign
from pharoah_protocol.tables.rows import EVIDENCE_BYTES, TableEntry, VerdictRow, row_tag, seal_table, split
from pharoah_protocol.voprf import protocol

LIFETIME_SECONDS = 25 * 3600
"""24 hours, and one in which the next epoch may be late."""
CLOCK_SKEW_SECONDS = 60


class SealableRows(NamedTuple):
    """Rows that can be sealed together, and those that cannot."""

    rows: tuple[LearnedRow, ...]
    left_out: tuple[LearnedRow, ...]


@dataclass(frozen=True)
class SealedClass:
    """The sealed table of one class of nodes, with its key."""

    class_id: bytes
    secret: bytes
    public: bytes
    content: bytes
    """All rows in one piece."""
    rows: tuple[LearnedRow, ...]
    signature: bytes
    """The provider's, over all rows."""
    tags: dict[str, bytes]
    """Id of a learned row to the tag it is sealed under."""


@dataclass(frozen=True)
class Epoch:
    """What the exchange serves: the signed head and, per class, key and rows."""

    head: EpochHead
    body: bytes
    signature: bytes
    classes: dict[bytes, SealedClass]
    ids: dict[ClassKey, bytes]
    context_rule: ContextRule
    """Which facts of a node make its context, in this epoch."""
    contexts: tuple[KnownContext, ...]
    """The contexts of which the release has trials."""


def seal(recipe: SealInputs, seed: bytes, key: Ed25519PrivateKey) -> Epoch:
    """Seal a release. Raises ValueError when two of its rows have one input."""
    rows: dict[ClassKey, list[LearnedRow]] = defaultdict(list)
    for row in recipe.release.rows:
        rows[_group_of(row)].append(row)
    classes = {group: _class(recipe.epoch, seed, key, group, rows.get(group, ())) for group in recipe.groups}
    # Ordered by class id, which is random, so that the order reveals nothing about the contexts.
    sealed = sorted(classes.values(), key=lambda one: one.class_id)
    head = EpochHead(
        recipe.epoch,
        recipe.release.release,
        recipe.began - CLOCK_SKEW_SECONDS,
        recipe.began + LIFETIME_SECONDS,
        tuple(_commit(one) for one in sealed),
    )
    body = head.encode()
    ids = {group: one.class_id for group, one in classes.items()}
    tables = {one.class_id: one for one in sealed}
    release = recipe.release
    return Epoch(head, body, sign(body, key), tables, ids, release.context_rule, release.contexts)


def sealable(rows: Iterable[LearnedRow]) -> SealableRows:
    """Rows whose inputs can be sealed, in their order: each input once per class, and none that is too long."""
    kept: list[LearnedRow] = []
    left_out: list[LearnedRow] = []
    inputs: set[bytes] = set()
    for row in rows:
        try:
            group = length_prefixed(row.scope.encode(), row.group_id.encode())
            key = group + compute_learned_input(row)
        except ValueError:
            left_out.append(row)
            continue
        if key in inputs or len(key) - len(group) > MAX_INPUT_BYTES:
            left_out.append(row)
            continue
        inputs.add(key)
        kept.append(row)
    return SealableRows(rows=tuple(kept), left_out=tuple(left_out))


def groups_of(rows: Iterable[LearnedRow]) -> set[ClassKey]:
    """The classes that some rows are about."""
    return {_group_of(row) for row in rows}


def _group_of(row: LearnedRow) -> ClassKey:
    return ClassKey(scope=row.scope, group_id=row.group_id)


def verdict_row(row: LearnedRow) -> VerdictRow:
    """The part of a learned row that is sealed."""
    return VerdictRow(
        severity=row.severity,
        outcome=row.outcome,
        rung=row.rung,
        failures=row.failures,
        runs=row.runs,
        base_failures=row.base_failures,
        base_runs=row.base_runs,
        remedy=row.remedy,
        plan=bytes.fromhex(row.plan) or PLAIN.pack(),
        provenance=row.provenance,
        grade=row.grade,
        evidence=bytes.fromhex(row.evidence) or bytes(EVIDENCE_BYTES),
        least_size=row.least_size,
    )


def compute_learned_input(row: LearnedRow) -> bytes:
    """The canonical input that opens a row."""
    return canonical_input(row.kind, row.rung, row.tokens)


def _class(epoch: int, seed: bytes, key: Ed25519PrivateKey, group: ClassKey, rows: Sequence[LearnedRow]) -> SealedClass:
    class_id = hmac.digest(seed, length_prefixed(b"pharoah/class/v1", *(part.encode() for part in group)), "sha256")[
        :16
    ]
    number = epoch.to_bytes(8, "big")
    secret, public = protocol.derive_key(seed, length_prefixed(b"pharoah/voprf/v1", number, class_id))
    outputs = [protocol.full_evaluate(secret, compute_learned_input(row)) for row in rows]
    sealed = seal_table(
        [TableEntry(output=output, row=verdict_row(row)) for output, row in zip(outputs, rows, strict=True)],
        epoch,
        class_id,
        hmac.digest(seed, b"pharoah/dummy/v1", "sha256"),
    )
    tags = {row.id: row_tag(output, epoch, class_id) for output, row in zip(outputs, rows, strict=True)}
    content = b"".join(sealed)
    signature = sign(signed_messages.table(epoch, class_id, content), key)
    return SealedClass(class_id, secret, public, content, tuple(rows), signature, tags)


def _commit(one: SealedClass) -> ClassTable:
    rows = split(one.content)
    return ClassTable(one.class_id, one.public, len(rows), root(rows))
