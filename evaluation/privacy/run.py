"""`python -m evaluation privacy`: what the exchange reveals, to whom, and what it costs.

Attackers see what a provider, an outsider, a tenant or malicious tenants would see, made by the code that is shipped.
Which jobs exist, how often each is run and how their steps behave is synthetic; processes, connections and
cryptography are real. `--docs` writes the tables into docs/exchange.md; with `--part`, only those of a part that has a
section of its own there.
"""

from __future__ import annotations

import argparse
import json
import logging
import random
import shutil
import subprocess
import sys
from collections.abc import Sequence
from functools import partial

from evaluation.figures import OUTPUT, Figures, timed
from evaluation.pages import ROOT
from evaluation.privacy import (
    psi_comparison,
    query_cost,
    query_leakage,
    query_timing,
    real_telemetry,
    report_leakage,
    shared_outcomes,
    table_enumeration,
)
from evaluation.privacy.synthetic_release import Universe
from pharoah_learning.sealing import Epoch
from pharoah_protocol.voprf import group, libsodium, protocol, pure_python

FOLDER = OUTPUT / "privacy"
PARTS_WITH_SECTION = ("reports", "telemetry")
"""Parts that have a section of their own in the docs."""
VECTORS = ROOT / "tests" / "data" / "voprf_rfc9497.json"


def run(arguments: argparse.Namespace) -> int:
    require_section(arguments)
    shutil.rmtree(FOLDER / "site", ignore_errors=True)
    logging.getLogger("pharoah.provider.log").setLevel(logging.ERROR)  # witnesses refuse thousands of false views here
    figures, chance, quick = Figures("privacy"), random.Random(arguments.seed), arguments.quick
    # These two take long, and are measured and documented alone as well.
    reports, telemetry = Figures("privacy reports"), Figures("privacy telemetry")
    universe = Universe(arguments.seed)
    epoch = universe.epoch()
    part = partial(timed, only=arguments.part)
    part("cryptography", lambda: _cryptography(figures, chance, 2_000))
    part("time and size of a batch", lambda: query_cost.batches(universe, epoch, figures, 20 if quick else 60))
    part(
        "the exchange alone", lambda: query_leakage.exchange_alone(universe, epoch, figures, 1_000 if quick else 8_000)
    )
    part("probe rows", lambda: query_leakage.probe_rows(universe, figures, 8_000))
    part("linking two epochs", lambda: query_leakage.linkage(universe, figures, 1 if quick else 8))
    part("reports", lambda: report_leakage.measure(reports, arguments.seed, quick))
    part("telemetry", lambda: real_telemetry.measure(telemetry, arguments.seed, quick))
    part("a tenant that spends its quota", lambda: table_enumeration.rows_opened(universe, epoch, figures))
    part("rows and dummies", lambda: table_enumeration.dummies(universe, figures, 2 if quick else 5))
    part("split views, omission", lambda: _misbehaviour(figures, chance, 20 if quick else 200))
    part("poisoned outcomes", lambda: shared_outcomes.poisoning(figures, chance, 100 if quick else 1_000))
    part("lifetimes of pseudonyms", lambda: shared_outcomes.lifetimes(figures, chance, 5 if quick else 25))
    part("the payload", lambda: _allow_list(figures))
    part(
        "queries",
        lambda: query_cost.queries(universe, figures, FOLDER, 100 if quick else 1_000),
    )
    part("times of messages", lambda: query_timing.measure(figures, quick, arguments.seed))
    part("other schemes", lambda: _other_schemes(universe, epoch, figures))
    return finished(arguments, (figures, reports, telemetry))


def require_section(arguments: argparse.Namespace) -> None:
    """Raises SystemExit where `--docs` would put the rows of one part in place of the rows of all."""
    part = arguments.part
    if arguments.docs and part is not None and part not in PARTS_WITH_SECTION:
        own = ", ".join(PARTS_WITH_SECTION)
        raise SystemExit(f"--part {part} --docs: this part has no section of its own in the docs; these have: {own}")


def finished(arguments: argparse.Namespace, sections: Sequence[Figures]) -> int:
    """Each writes a section of its own, where it has figures; they are printed and kept together."""
    together = Figures("privacy")
    for section in sections:
        if not section.empty:
            section.document(arguments)
        together.include(section)
    return together.finish(argparse.Namespace(**{**vars(arguments), "docs": False}))


def _cryptography(figures: Figures, chance: random.Random, mutations: int) -> None:
    """Published vectors on both groups; then batches with one thing changed, all of which must be refused."""
    vectors = json.loads(VECTORS.read_text())
    secret, public = bytes.fromhex(vectors["skSm"]), bytes.fromhex(vectors["pkSm"])
    held = total = 0
    for backend in (libsodium, pure_python):
        with group.using(backend):
            for vector in vectors["vectors"]:
                held += _vector_holds(vector, secret, public)
                total += 1
    figures.ratio("rfc9497_vectors_ratio", held, total, 1.0)
    refused = 0
    for number in range(mutations):
        with group.using(pure_python if number % 8 == 0 else libsodium):
            refused += _mutation_is_refused(secret, public, chance)
    figures.ratio("mutations_rejected_ratio", refused, mutations, 1.0)


def _vector_holds(vector: dict[str, object], secret: bytes, public: bytes) -> bool:
    def column(name: str) -> list[bytes]:
        return [bytes.fromhex(value) for value in str(vector[name]).split(",")]

    proof = vector["Proof"]
    assert isinstance(proof, dict)
    inputs, blinds = column("Input"), column("Blind")
    blinded = [protocol.blind(*item)[1] for item in zip(inputs, blinds, strict=True)]
    evaluated, made = protocol.evaluate(secret, public, blinded, bytes.fromhex(proof["r"]))
    outputs = [protocol.finalize(*item) for item in zip(inputs, blinds, evaluated, strict=True)]
    right = (column("BlindedElement"), column("EvaluationElement"), column("Output"), bytes.fromhex(proof["proof"]))
    return (blinded, evaluated, outputs, made) == right


def _mutation_is_refused(secret: bytes, public: bytes, chance: random.Random) -> bool:
    count = chance.randrange(2, 5)
    blinded = [protocol.filler() for _ in range(count)]
    evaluated, proof = protocol.evaluate(secret, public, blinded)
    parts = {"evaluated": list(evaluated), "blinded": list(blinded)}
    match chance.randrange(8):
        case 0 | 1 | 2:
            target = parts[chance.choice(["evaluated", "blinded"])]
            at = chance.randrange(count)
            target[at] = _flipped(target[at], chance)
        case 3 | 4:
            proof = _flipped(proof, chance)
        case 5:
            parts["evaluated"] = parts["evaluated"][1:] + parts["evaluated"][:1]
        case 6:
            public = protocol.derive_key(chance.randbytes(32), b"")[1]
        case 7:
            parts["evaluated"][chance.randrange(count)] = bytes(32)
    try:
        protocol.verify(public, parts["blinded"], parts["evaluated"], proof)
    except protocol.ProofError:
        return True
    return False


def _flipped(data: bytes, chance: random.Random) -> bytes:
    at, bit = chance.randrange(len(data)), chance.randrange(8)
    return data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :]


def _misbehaviour(figures: Figures, chance: random.Random, trials: int) -> None:
    table_enumeration.split_views(figures, trials, chance)
    table_enumeration.omission(figures, chance)


def _allow_list(figures: Figures) -> None:
    """The property tests of the payload, as they are in the suite."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "tests/tenant_sdk/test_payload.py"], capture_output=True, cwd=ROOT
    )
    figures.add("payload_allowlist", done.returncode == 0, "true", done.returncode == 0)


def _other_schemes(universe: Universe, epoch: Epoch, figures: Figures) -> None:
    rows = psi_comparison.costs(universe, epoch)
    ours = rows[0]
    figures.table(
        "Times are ratios to ours, measured side by side.",
        ("64 inputs, 10,000 rows", "tenant", "provider", "bytes up", "table, once an epoch", "verifiable"),
        [
            (
                row.scheme,
                f"{row.client_seconds / ours.client_seconds:.2f}",
                f"{row.server_seconds / ours.server_seconds:.2f}",
                f"{row.sent_bytes:,}",
                f"{row.table_bytes:,}",
                row.verifiable,
            )
            for row in rows
        ],
    )
    figures.table(
        "Top-1 guesses among 10,000 jobs (Zipf 1); the prior alone is right as often as the last row.",
        ("what is sent", "provider guesses right", "outsider without TLS"),
        [
            (scheme, f"{own:.2f}", f"{other:.2f}")
            for scheme, own, other in query_leakage.leakage_of_others(universe, 8_000)
        ],
    )
