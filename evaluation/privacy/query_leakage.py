"""Attackers of the exchange: parties that see its messages, with and without the provider's key, guess the job.

Every attacker may fall back on the prior, so what counts is how much better it does than guessing the commonest job.
"""

from __future__ import annotations

import hashlib
import hmac
from collections import defaultdict
from collections.abc import Sequence
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from evaluation.figures import Figures
from evaluation.privacy.synthetic_release import Universe
from pharoah_archetypes import canonical_input, rung_tokens
from pharoah_learning.release import ClassKey
from pharoah_learning.sealing import Epoch
from pharoah_protocol.tables.query import blind, inputs_of
from pharoah_protocol.vocabulary import Scope
from pharoah_protocol.voprf import group, libsodium, protocol

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
GUESSED = 200
"""How many of the commonest jobs are tried against every transcript, by every formula."""
POPULAR = 30


def exchange_alone(universe: Universe, epoch: Epoch, figures: Figures, trials: int) -> None:
    """The provider, with its keys, its table and all messages; and an outsider that has broken TLS."""
    sealed = epoch.classes[epoch.ids[ClassKey(scope=Scope.SERVER, group_id="a")]]
    dictionary = _dictionary(universe, sealed.secret)
    asked = [universe.draw() for _ in range(trials)]
    transcripts = [blind(inputs_of(universe.jobs[rank])).blinded for rank in asked]
    matched = [next((dictionary[e] for e in elements if e in dictionary), None) for elements in transcripts]
    learned = learned_guesses(transcripts, asked)
    guesses = [found if found is not None else guess for found, guess in zip(matched, learned, strict=True)]
    by_prior = sum(rank == 0 for rank in asked)
    success = sum(guess == rank for guess, rank in zip(guesses, asked, strict=True))
    half = 1.96 * sqrt(max(1, sum(g != 0 for g in guesses))) / trials
    figures.details["prior"] = {
        "top1": by_prior / trials,
        "trials": trials,
        "seen": sum(m is not None for m in matched),
    }
    advantage = max(0.0, (success - by_prior) / trials)
    figures.add("provider_advantage", advantage, "<= 0.01", advantage <= 0.01, f"+-{half:.4f} n={trials}")
    outside = _dictionary(universe, None)
    seen = sum(any(element in outside for element in elements) for elements in transcripts)
    figures.add("outsider_success", seen / trials, "<= 0.001", seen / trials <= 0.001, f"n={trials}")


def probe_rows(universe: Universe, figures: Figures, trials: int) -> None:
    """A provider that seals a false row for the commonest job, and guesses from the decision about the node.

    With `gate=warn`, the default, the tenant always accepts; with `gate=block` the decision reveals one bit.
    """
    for gate in ("warn", "block"):
        success = by_prior = 0
        for _ in range(trials):
            rank = universe.draw()
            taken = universe.chance.random() < 0.95 and not (gate == "block" and rank == 0)
            guess = 0 if gate == "warn" or not taken else 1
            success += guess == rank
            by_prior += rank == 0
        figures.add(
            f"probe_rows_advantage_gate_{gate}", max(0.0, (success - by_prior) / trials), interval=f"n={trials}"
        )


def linkage(universe: Universe, figures: Figures, rounds: int, jobs: int = 500) -> None:
    """The same jobs in two epochs: can their transcripts be paired?"""
    hits = shared = 0
    for _ in range(rounds):
        first, second = ([blind(inputs_of(universe.jobs[i])).blinded for i in range(jobs)] for _ in range(2))
        index = {element: i for i, elements in enumerate(first) for element in elements}
        shared += sum(index.get(element) == i for i, elements in enumerate(second) for element in elements)
        a, b = _features(first), _features(second)
        nearest = np.argmin(((a[None, :, :] - b[:, None, :]) ** 2).sum(axis=2), axis=1)
        hits += int((nearest == np.arange(jobs)).sum())
    trials = rounds * jobs
    advantage = max(0.0, hits / trials - 1 / jobs) + shared / trials
    half = 1.96 * sqrt(1 / jobs * (1 - 1 / jobs) / trials)
    figures.add("linkage_advantage", advantage, "<= 0.005", advantage <= 0.005, f"+-{half:.4f} n={trials}")


def leakage_of_others(universe: Universe, trials: int) -> list[tuple[str, float, float]]:
    """(scheme, provider's success, outsider's success): what simpler schemes reveal, on the same jobs."""
    asked = [universe.draw() for _ in range(trials)]
    inputs = [canonical_input("arch", "exact", rung_tokens(job, "exact")) for job in universe.jobs]
    prior = sum(rank == 0 for rank in asked) / trials

    def broken(hashed: list[bytes]) -> float:
        table = {value: rank for rank, value in enumerate(hashed)}
        return sum(table[hashed[rank]] == rank for rank in asked) / trials

    key, salt = b"k" * 32, b"public salt"
    plain = broken([hashlib.sha256(x).digest() for x in inputs])
    salted = broken([hashlib.sha256(salt + x).digest() for x in inputs])
    keyed = broken([hmac.digest(key, x, "sha256") for x in inputs])
    buckets: dict[int, int] = {}
    for rank, x in enumerate(inputs):
        buckets.setdefault(hashlib.sha256(x).digest()[0], rank)  # the commonest of each bucket
    bucketed = sum(buckets[hashlib.sha256(inputs[rank]).digest()[0]] == rank for rank in asked) / trials
    return [
        ("plain SHA-256", plain, plain),
        ("SHA-256 with a public salt", salted, salted),
        ("HMAC, provider's key (our hashed mode)", keyed, prior),
        ("VOPRF, 8-bit buckets", bucketed, prior),
        ("whole table, blinded (our private mode)", prior, prior),
    ]


def _dictionary(universe: Universe, secret: bytes | None) -> dict[bytes, int]:
    """Every element an attacker could compute for the commonest jobs: hashed to the group, and times the key."""
    found: dict[bytes, int] = {}
    for rank, job in enumerate(universe.jobs[:GUESSED]):
        for asked in inputs_of(job):
            element = protocol._hash_to_group(asked.value)
            found[element] = rank
            found[group.from_hash(hashlib.sha512(asked.value).digest())] = rank
            if secret is not None and (product := libsodium.multiply(secret, element)):
                found[product] = rank
    return found


def learned_guesses(transcripts: Sequence[Sequence[bytes]], asked: Sequence[int]) -> list[int]:
    """A linear classifier (popular job or not) on everything that can be counted in the bytes.

    Each half of the transcripts is guessed by a classifier that was trained on the other half, so every guess is about
    a transcript that its classifier has not seen, and all transcripts count.
    """
    x, ranks = _features(transcripts), np.array(asked, dtype=np.int64)
    second = np.arange(len(ranks)) >= len(ranks) // 2
    guesses = np.empty(len(ranks), dtype=np.int64)
    for held in (second, ~second):
        guesses[held] = _guesses_of_half(x[~held], ranks[~held], x[held])
    return [int(guess) for guess in guesses]


def _guesses_of_half(train: Floats, asked: Ints, test: Floats) -> Ints:
    """The guesses deviate from the prior only where, on the training half, deviating paid."""
    middle, spread = train.mean(axis=0), train.std(axis=0) + 1e-9
    train, test = (train - middle) / spread, (test - middle) / spread
    gram = train.T @ train + len(asked) * np.eye(train.shape[1])
    guesses = np.zeros(len(test), dtype=np.int64)
    best: dict[int, float] = defaultdict(float)
    for rank in range(1, POPULAR):
        w = np.linalg.lstsq(gram, train.T @ (asked == rank).astype(float), rcond=None)[0]
        scores, others = train @ w, test @ w
        order = np.sort(scores)[::-1]
        for count in (5, 20):
            chosen = scores >= order[count]
            gain = float((asked[chosen] == rank).sum() - (asked[chosen] == 0).sum())
            if gain > count / 4 + best[rank]:
                best[rank] = gain
                guesses[others >= order[count]] = rank
    return guesses


def _features(transcripts: Sequence[Sequence[bytes]]) -> Floats:
    """Features of each transcript: number and size of its elements, how often each bit of the first 20 is set."""
    rows = []
    for elements in transcripts:
        bits = np.unpackbits(np.frombuffer(b"".join(elements[:20]), dtype=np.uint8)).reshape(20, 256)
        sums = bits.sum(axis=0)
        rows.append(np.concatenate([[len(elements), len(b"".join(elements))], sums, bits.sum(axis=1)]))
    return np.array(rows, dtype=float)
