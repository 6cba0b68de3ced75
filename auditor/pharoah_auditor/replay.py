"""Sealing an epoch again from what the provider has handed over: does its head commit to what was learned?

This is what proofs cannot show: that rows were left out, invented, or made to find somebody out. Trials are the
provider's own word: who invents rows must invent trials as well, and keep doing so.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from pharoah_learning.evidence import Trial
from pharoah_learning.incompatibility import learn_incompatibilities
from pharoah_learning.monitoring_plans import LEAST_ARCHETYPES, learn_plans
from pharoah_learning.near_duplicates import learn_near_duplicates
from pharoah_learning.release import ClassKey, LearnedRow, Release, SealInputs
from pharoah_learning.sealing import seal
from pharoah_protocol.log.checkpoint import Note, log_verifier
from pharoah_protocol.log.view import HEAD, Entry, LogError, View
from pharoah_protocol.monitoring_plan import PLAIN
from pharoah_protocol.tables.epoch_head import is_signed
from pharoah_protocol.vocabulary import RowKind, Severity


class AuditBundleError(ValueError):
    """A file that is no hand-over; the message says why."""


@dataclass(frozen=True)
class AuditFinding:
    holds: bool | None
    """None: there was nothing to check it by."""
    what: str


def replay(file: Path, public: bytes, seen: Path | None = None) -> list[AuditFinding]:
    """Everything a hand-over shows about the provider with this key.

    `seen` is a checkpoint that a tenant or a witness has seen, or a tenant's kept answer. Raises HandOverError.
    """
    try:
        data = json.loads(file.read_text())
        release = Release.from_dict(data["release"])
        groups = tuple((scope, group) for scope, group in data["groups"])
        recipe = SealInputs(int(data["epoch"]), release, groups, int(data["began"]))
        head, signature, seed = (bytes.fromhex(data[name]) for name in ("head", "signature", "seed"))
        trials = [Trial.from_dict(row) for row in data["trials"]]
        log = [bytes.fromhex(entry) for entry in data["log"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise AuditBundleError(f"{file}: no hand-over of a known format ({error})") from None
    if not is_signed(head, signature, Ed25519PublicKey.from_public_bytes(public)):
        return [AuditFinding(False, "the head is not signed by this key; nothing else was looked at")]
    return [
        AuditFinding(True, "the head is signed by this key"),
        _sealed_again(recipe, seed, head),
        _logged(recipe.epoch, head, log),
        _as_seen(log, public, seen),
        *_learned_again(release, groups, trials),
    ]


def _sealed_again(recipe: SealInputs, seed: bytes, head: bytes) -> AuditFinding:
    try:
        again = seal(recipe, seed, Ed25519PrivateKey.generate())
    except ValueError as error:
        return AuditFinding(False, f"the epoch cannot be sealed again: {error}")
    rows = sum(len(one.rows) for one in again.classes.values())
    told = f"{rows} rows in {len(again.classes)} tables seal to the head's roots and keys"
    return AuditFinding(again.body == head, told if again.body == head else f"NOT: {told}")


def _logged(epoch: int, head: bytes, log: list[bytes]) -> AuditFinding:
    try:
        View().read(log)
    except LogError as error:
        return AuditFinding(False, f"the log is not an honest one: {error}")
    found = Entry.of(HEAD, epoch, head).encode() in log
    return AuditFinding(found, f"the head stands {'' if found else 'NOT '}in the log of {len(log)} entries")


def _as_seen(log: list[bytes], public: bytes, seen: Path | None) -> AuditFinding:
    """Whether this is the log that others were shown: a provider could hand over one that nobody has seen."""
    if seen is None:
        return AuditFinding(None, "that this is the log others have seen was not checked (--seen FILE)")
    try:
        text = seen.read_text()
        note = Note.decode((json.loads(text)["checkpoint"] if text.startswith("{") else text).encode())
        note.verify(log_verifier(public))
        root = View().read(log[: note.checkpoint.size]).frontier.root
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise AuditBundleError(f"{seen}: no checkpoint of this provider ({error})") from None
    same = note.checkpoint.size <= len(log) and root == note.checkpoint.root
    return AuditFinding(
        same, f"the log is {'' if same else 'NOT '}the one of the checkpoint of {note.checkpoint.size} entries"
    )


def _learned_again(release: Release, groups: tuple[ClassKey, ...], trials: list[Trial]) -> Iterator[AuditFinding]:
    """Rows that no trial speaks for: guesses about what tenants run look like this. And rows that were left out."""
    rows = learn_plans(learn_incompatibilities(trials), trials)
    expected = Counter(_said(row) for row in [*rows, *learn_near_duplicates(rows, trials)])
    sealed = Counter(_said(row) for row in release.rows if row.kind is not RowKind.PSEUDONYM)
    names = [row for row in release.rows if row.kind is RowKind.PSEUDONYM]
    invented, missing = (sealed - expected).total(), (expected - sealed).total()
    yield AuditFinding(not invented, f"{invented} of {sealed.total()} rows do not follow from the {len(trials)} trials")
    yield AuditFinding(not missing, f"{missing} rows that follow from the trials were left out")
    if names:
        loud = sum(row.severity is Severity.BLOCK for row in names)
        told = f"{len(names)} rows are about what tenants told, whose votes are not handed over"
        yield AuditFinding(False if loud else None, f"{told}; {loud} of them block" if loud else told)
    known = {("server", trial.context_id) for trial in trials} | {("device", trial.device_id) for trial in trials}
    strange = len(set(groups) - known)
    yield AuditFinding(None if strange else True, f"{strange} of {len(groups)} tables are of machines without a trial")
    rare = _rare_plans(release)
    yield AuditFinding(not rare, f"{rare} monitoring plans are shared by fewer than {LEAST_ARCHETYPES} archetypes")


def _rare_plans(release: Release) -> int:
    """Plans by which the provider could tell from reports what runs."""
    sharing: dict[str, set[str]] = defaultdict(set)
    for row in release.rows:
        archetype = next((token for token in row.tokens if token.startswith("archetype=")), "")
        if row.plan and row.plan != PLAIN.pack().hex() and archetype:
            sharing[row.plan].add(archetype)
    return sum(len(archetypes) < LEAST_ARCHETYPES for archetypes in sharing.values())


def _said(row: LearnedRow) -> tuple[Any, ...]:
    return (
        row.id,
        row.severity,
        row.outcome,
        row.failures,
        row.runs,
        row.base_failures,
        row.base_runs,
        row.remedy,
        row.plan,
    )
