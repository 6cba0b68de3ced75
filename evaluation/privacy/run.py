"""`python -m evaluation privacy`: what the exchange gives away, to whom, and what it costs.

Attackers see what a provider, an outsider, a tenant or liars among the tenants would see, made by the code that is
shipped. Which jobs there are, how often each is run and how their steps behave is synthetic; processes, connections and
cryptography are real. `--docs` writes the tables into docs/exchange.md.
"""

from __future__ import annotations

import argparse
import json
import logging
import platform
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

from evaluation.figures import Figures, timed
from evaluation.privacy import (
    psi_comparison,
    query_cost,
    query_leakage,
    report_leakage,
    shared_outcomes,
    table_enumeration,
)
from evaluation.privacy.synthetic_release import Universe
from pharoah_learning.sealing import Epoch
from pharoah_protocol.voprf import group, libsodium, protocol, pure_python

FOLDER = Path("evaluation-out/privacy")
VECTORS = Path("tests/data/voprf_rfc9497.json")
DOCS = Path("docs/exchange.md")
BEGIN, END = "<!-- privacy: begin -->", "<!-- privacy: end -->"


def run(arguments: argparse.Namespace) -> int:
    shutil.rmtree(FOLDER / "site", ignore_errors=True)
    logging.getLogger("pharoah.provider.log").setLevel(logging.ERROR)  # witnesses refuse thousands of lies here
    figures, chance, quick = Figures("privacy"), random.Random(arguments.seed), arguments.quick
    universe = Universe(arguments.seed)
    epoch = universe.epoch()
    tables: dict[str, list[str]] = {}
    timed("cryptography", lambda: _cryptography(figures, chance, 2_000))
    timed("time and size of a batch", lambda: query_cost.batches(universe, epoch, figures, 20 if quick else 60))
    timed(
        "the exchange alone", lambda: query_leakage.exchange_alone(universe, epoch, figures, 1_000 if quick else 8_000)
    )
    timed("probe rows", lambda: query_leakage.probe_rows(universe, figures, 8_000))
    timed("linking two epochs", lambda: query_leakage.linkage(universe, figures, 1 if quick else 8))
    timed("reports", lambda: report_leakage.with_reports(figures, chance, 1 if quick else 3, 1_000 if quick else 4_000))
    timed("slowdowns", lambda: report_leakage.slowdowns(figures, chance, 1_000 if quick else 4_000))
    timed("a tenant who asks", lambda: table_enumeration.rows_opened(universe, epoch, figures))
    timed("rows and dummies", lambda: table_enumeration.dummies(universe, figures, 2 if quick else 5))
    timed("split views, omission", lambda: _lies(figures, chance, 20 if quick else 200))
    timed("what tenants tell", lambda: _told(figures, chance, 100 if quick else 1_000, 5 if quick else 25, tables))
    timed("what leaves", lambda: _allow_list(figures))
    timed(
        "questions",
        lambda: query_cost.questions(universe, figures, FOLDER, 100 if quick else 1_000, 400 if quick else 8_000),
    )
    timed("beside others", lambda: _beside(universe, epoch, tables))
    print("\nall figures")
    for line in figures._lines:
        print(f"  {line[0]:34} {line[1]:>9}  {line[2]:40} {line[3]}")
    figures.details["tables"] = tables
    if arguments.docs:
        _write_docs(figures, tables, arguments)
    return figures.write(arguments.out)


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


def _lies(figures: Figures, chance: random.Random, trials: int) -> None:
    table_enumeration.split_views(figures, trials, chance)
    table_enumeration.omission(figures, chance)


def _told(figures: Figures, chance: random.Random, trials: int, draws: int, tables: dict[str, list[str]]) -> None:
    shared_outcomes.poisoning(figures, chance, trials)
    tables["names"] = [
        "| a name lives | failing jobs that get a row | runs of one organisation under one name |",
        "|---|---|---|",
        *(
            f"| {days} days | {found:.2f} | {linked:.1f} |"
            for days, found, linked in shared_outcomes.lifetimes(figures, chance, draws)
        ),
    ]


def _allow_list(figures: Figures) -> None:
    """The property tests of what leaves, as they are in the suite."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "tests/tenant_sdk/test_payload.py"], capture_output=True
    )
    figures.add("payload_allowlist", done.returncode == 0, "true", done.returncode == 0)


def _beside(universe: Universe, epoch: Epoch, tables: dict[str, list[str]]) -> None:
    rows = psi_comparison.costs(universe, epoch, FOLDER)
    ours = rows[0]
    tables["costs"] = [
        "| 64 inputs, 10,000 rows | tenant | provider | bytes up | table, once an epoch | verifiable |",
        "|---|---|---|---|---|---|",
        *(
            f"| {row.scheme} | {row.client_seconds / ours.client_seconds:.2f} | "
            f"{row.server_seconds / ours.server_seconds:.2f} | {row.sent_bytes:,} | {row.table_bytes:,} | "
            f"{row.verifiable} |"
            for row in rows
        ),
    ]
    tables["leakage"] = [
        "| what is sent | provider guesses right | outsider without TLS |",
        "|---|---|---|",
        *(
            f"| {scheme} | {own:.2f} | {other:.2f} |"
            for scheme, own, other in query_leakage.leakage_of_others(universe, 8_000)
        ),
    ]
    print("\n".join(line for table in tables.values() for line in table), flush=True)


def _write_docs(figures: Figures, tables: dict[str, list[str]], arguments: argparse.Namespace) -> None:
    text = DOCS.read_text()
    before, _, rest = text.partition(BEGIN)
    command = f"python -m evaluation privacy --seed {arguments.seed}{' --quick' if arguments.quick else ''}"
    machine = f"{platform.machine()}, {platform.python_version()}, {time.strftime('%Y-%m-%d')}"
    lines = [
        BEGIN,
        f"`{command}`, {machine}.",
        "",
        "| figure | value | interval, trials | must be |",
        "|---|---|---|---|",
    ]
    lines += [f"| `{key}` | {value} | {interval} | {must} |" for key, value, interval, must in figures._lines]
    lines += ["", "Times are ratios to ours, measured side by side.", "", *tables["costs"], ""]
    lines += ["Top-1 guesses among 10,000 jobs (Zipf 1); the prior alone is right as often as the last row.", ""]
    lines += [*tables["leakage"], "", *tables["names"], END]
    DOCS.write_text(before + "\n".join(lines) + rest.partition(END)[2])
