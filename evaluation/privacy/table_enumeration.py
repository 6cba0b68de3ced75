"""A tenant that asks to learn the table or to distinguish rows from dummies; misbehaviour that others must notice."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import secrets
from collections.abc import Callable, Sequence
from math import sqrt
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from evaluation.figures import Figures
from evaluation.privacy.synthetic_release import Universe
from pharoah.sidecar.log_client import LogClient, VerificationError
from pharoah_archetypes import canonical_input, rung_tokens
from pharoah_auditor.witness import Refusal, Witness
from pharoah_learning.release import ClassKey
from pharoah_learning.sealing import Epoch
from pharoah_protocol.log.checkpoint import CheckpointError, Note, SignatureLine, log_verifier
from pharoah_protocol.log.view import HEAD, Entry
from pharoah_protocol.tables.outcome_test import SUSPICIOUS_RATIO, USUAL_RATIO, Tally
from pharoah_protocol.tables.query import BATCH_ITEMS
from pharoah_protocol.tables.rows import open_row, split
from pharoah_protocol.vocabulary import Role, Scope
from pharoah_protocol.voprf import protocol
from pharoah_provider.transparency_log import TransparencyLog, WitnessError
from pharoah_provider.transparency_log import Witness as WitnessHandle
from pharoah_serving.errors import Exhausted
from pharoah_serving.principals import Principal
from pharoah_serving.quotas import Limits, Quotas


def rows_opened(universe: Universe, epoch: Epoch, figures: Figures) -> None:
    """A day of an account that spends its whole quota on the commonest jobs, on the two classes of its offer."""
    offered = [
        epoch.ids[ClassKey(scope=Scope.SERVER, group_id="a")],
        epoch.ids[ClassKey(scope=Scope.DEVICE, group_id="gpu")],
    ]
    never = epoch.ids[ClassKey(scope=Scope.SERVER, group_id="b")]
    tables = {class_id: split(one.content) for class_id, one in epoch.classes.items()}
    quotas, who, asked = Quotas(), Principal(Role.TENANT, "mallory/one"), 0
    opened: dict[bytes, set[int]] = {class_id: set() for class_id in (*offered, never)}
    while True:
        try:
            quotas.take_question(who, 1e9)
        except Exhausted:
            break
        ranks = range(asked * BATCH_ITEMS, min((asked + 1) * BATCH_ITEMS, len(universe.jobs)))
        inputs = [canonical_input("arch", "exact", rung_tokens(universe.jobs[rank], "exact")) for rank in ranks]
        asked += 1
        for class_id in offered:
            outputs = _outputs(epoch, class_id, inputs)
            for rank, output in zip(ranks, outputs, strict=True):
                if open_row(tables[class_id], output, epoch.head.epoch, class_id):
                    opened[class_id].add(rank)
                if open_row(tables[never], output, epoch.head.epoch, never):
                    opened[never].add(rank)
    quota = len(offered) * BATCH_ITEMS * Limits().tenant_queries
    total = sum(len(opened[class_id]) for class_id in offered)
    mass = sum(universe.prior[rank] for rank in opened[offered[0]])
    figures.add("rows_opened", total, f"<= quota of {quota}", total <= quota)
    figures.add("query_mass_opened", mass)
    figures.add("rows_opened_never_offered", len(opened[never]), "0", not opened[never])
    accounts, coalition, allowed = 100, Quotas(), 0
    for number in range(accounts):
        for _ in range(Limits().tenant_queries):
            with contextlib.suppress(Exhausted):
                coalition.take_question(Principal(Role.TENANT, f"mallory/{number}"), 1e9)
                allowed += 1
    most = len(offered) * BATCH_ITEMS * Limits().organisation_queries
    opened_together = len(offered) * BATCH_ITEMS * allowed
    interval = f"{accounts} accounts of one organisation"
    figures.add("rows_opened_coalition", opened_together, f"<= quota of {most}", opened_together <= most, interval)


def dummies(universe: Universe, figures: Figures, epochs: int) -> None:
    """AUC of a linear classifier over the bits of sealed rows, trained on half of each table; mean over tables."""
    aucs, tests = [], 0
    for number in range(1, epochs + 1):
        epoch = universe.epoch(number)
        one = epoch.classes[epoch.ids[ClassKey(scope=Scope.SERVER, group_id="a")]]
        rows, real = split(one.content), set(one.tags.values())
        y = np.array([row[:16] in real for row in rows], dtype=float)
        x = np.unpackbits(np.frombuffer(one.content, dtype=np.uint8)).reshape(len(rows), -1).astype(float) - 0.5
        half = np.random.default_rng(number).permutation(len(rows))
        train, test = half[: len(rows) // 2], half[len(rows) // 2 :]
        w = np.linalg.lstsq(
            x[train].T @ x[train] + 50 * np.eye(x.shape[1]), x[train].T @ (y[train] - y.mean()), rcond=None
        )[0]
        aucs.append(auc(x[test] @ w, y[test]))
        tests += len(test)
    value, half_width = float(np.mean(aucs)), 1.96 * sqrt(1 / 12 / (0.24 * tests))
    worst = abs(value - 0.5) + half_width
    figures.add("dummy_auc_halfwidth", worst, "<= 0.02", worst <= 0.02, f"{value:.3f}+-{half_width:.3f} n={tests}")


def auc(scores: np.ndarray, labels: np.ndarray) -> float:
    """Probability that a positive scores above a negative (Mann and Whitney 1947)."""
    ranks = np.empty(len(scores))
    ranks[np.argsort(scores, kind="stable")] = np.arange(1, len(scores) + 1)
    for value in np.unique(scores):
        ranks[scores == value] = ranks[scores == value].mean()
    positives = labels.sum()
    return float((ranks[labels == 1].sum() - positives * (positives + 1) / 2) / (positives * (len(labels) - positives)))


def split_views(figures: Figures, trials: int, chance: random.Random) -> None:
    """A provider with two logs, one honest witness, two tenants: the second tenant must reject its view."""
    caught = 0
    for _ in range(trials):
        common = [
            Entry.from_body(HEAD, number, secrets.token_bytes(8)).encode()
            for number in range(1, chance.randrange(1, 9))
        ]
        first = [*common, Entry.from_body(HEAD, len(common) + 1, b"for everybody").encode()]
        second = [*common, Entry.from_body(HEAD, len(common) + 1, b"for one tenant").encode()]
        caught += _second_is_caught(first, second)
    figures.ratio("split_view_detected_ratio", caught, trials, 1.0)


def _second_is_caught(first: list[bytes], second: list[bytes]) -> bool:
    key, witness_key = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
    public = key.public_key()
    with TemporaryDirectory() as folder:
        witness = Witness("w", witness_key, [log_verifier(public.public_bytes_raw())], Path(folder, "seen.json"))
        shown = []
        for entries in (first, second):
            log = TransparencyLog(entries, key, [WitnessHandle(witness.verifier, _asking(witness))])
            asyncio.run(log.serve(log.view))
            shown.append(log.checkpoint)
        tenants = [LogClient(public, [witness.verifier], None) for _ in range(2)]
        accepted = []
        for tenant, entries, checkpoint in zip(tenants, (first, second), shown, strict=True):
            try:
                accepted.append(tenant.follow(entries, checkpoint))
                tenant._check_witnesses(1e9)
            except (VerificationError, CheckpointError):
                accepted[-1:] = [False]
    return accepted == [True, False]


def _asking(witness: Witness) -> Callable[[int, Sequence[bytes], Note], SignatureLine]:
    """A witness without the HTTP in between."""
    import base64

    def ask(old: int, proof: Sequence[bytes], note: Note) -> SignatureLine:
        lines = [f"old {old}", *(base64.b64encode(part).decode() for part in proof)]
        try:
            cosigned = witness.add_checkpoint("\n".join(lines).encode() + b"\n\n" + note.encode(), 10**9)
        except Refusal as refusal:
            size = int(refusal.text) if refusal.text.isdigit() else None
            raise WitnessError(refusal.text, size) from None
        return Note.decode(note.checkpoint.body + b"\n" + cosigned).signatures[0]

    return ask


def omission(figures: Figures, chance: random.Random, most: int = 1000) -> None:
    """A provider that leaves out the rows of one failing job in twenty: after how many runs does one tenant notice?"""
    for share, name in ((0.05, "omission_5pct_detected_runs"), (0.3, "omission_30pct_detected_runs")):
        found = []
        for _ in range(200):
            failed = [chance.random() < share + (1 - share) * USUAL_RATIO / 2 for _ in range(most)]
            totals = itertools.accumulate(failed, Tally.add, initial=Tally())
            found.append(next((total.runs for total in totals if total.alarmed), most + 1))
        noticed = [runs for runs in found if runs <= most]
        interval = f"{len(noticed)} of {len(found)} tenants; H1 {SUSPICIOUS_RATIO:g}"
        figures.add(name, float(np.median(noticed)) if noticed else float("inf"), interval=interval)


def _outputs(epoch: Epoch, class_id: bytes, inputs: list[bytes]) -> list[bytes]:
    """The outputs for an account's inputs; blinding does not change them and is left out here."""
    return [protocol.full_evaluate(epoch.classes[class_id].secret, value) for value in inputs]
