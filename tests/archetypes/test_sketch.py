"""Bands: two skeletons share one with the probability their likeness says."""

from __future__ import annotations

import random
from itertools import combinations
from statistics import mean

from pharoah_archetypes import Fingerprint, Skeleton, band_tokens, parse
from pharoah_archetypes.catalogue import catalogue
from pharoah_archetypes.similarity import grams
from pharoah_archetypes.sketch import BANDS, bands

LETTERS = ["gemm", "attn", "act", "conv", "emb", "idx", "nll", "rnn", "pool"]


def near_pairs(count: int) -> list[tuple[Skeleton, Skeleton]]:
    """Random words, and the same with a little more."""
    chance = random.Random(4)
    pairs = []
    for _ in range(count):
        word = [chance.choice(LETTERS) for _ in range(chance.randrange(10, 40))]
        more = [*word, *(chance.choice(LETTERS) for _ in range(chance.randrange(4)))]
        left, right = (parse(f"fwd: {' '.join(sequence)}\nbwd: grad\nwith: causal") for sequence in (word, more))
        pairs.append((left, right))
    return pairs


def test_a_band_is_shared_as_often_as_broder_says() -> None:
    """P(band) = J^8 (Broder 1997), far from each other and near."""
    far = list(combinations([entry.skeleton for entry in catalogue().values()], 2))
    for pairs, tolerance in ((far, 0.01), (near_pairs(150), 0.05)):
        expected, shared = [], []
        for left, right in pairs:
            a, b = grams(left), grams(right)
            expected.append(((a & b).total() / (a | b).total()) ** 8)
            shared.append(sum(x == y for x, y in zip(bands(left), bands(right), strict=True)) / BANDS)
        assert abs(mean(expected) - mean(shared)) < tolerance
    assert 0.2 < mean(expected) < 0.9


def test_sizes_do_not_change_bands_and_software_does() -> None:
    entry = next(iter(catalogue().values()))

    def job(**changes: object) -> Fingerprint:
        plain = {
            "archetype": "ab" * 16,
            "compute": "",
            "grammar": entry.skeleton.text,
            "features": {"dtype": "float32"},
            "sizes": {"parameters": 1, "activations": 1},
            "versions": {"torch": "2.13.0"},
        }
        return Fingerprint(**{**plain, **changes})  # type: ignore[arg-type]

    plain = band_tokens(job())
    assert len(plain) == BANDS == len(set(plain))
    assert band_tokens(job(archetype="cd" * 16, sizes={"parameters": 9**9, "activations": 1})) == plain
    for other in ({"features": {"dtype": "float16"}}, {"versions": {"torch": "2.12.0"}}):
        assert not set(band_tokens(job(**other))) & set(plain)
    assert all(not token.startswith("archetype=") for band in plain for token in band)
