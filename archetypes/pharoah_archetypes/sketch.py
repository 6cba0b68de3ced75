"""Bands of a sketch: what archetypes that are nearly the same have in common, as inputs of signatures.

MinHash (Broder 1997) over the grams of a skeleton, 128 functions in 16 bands of 8: two archetypes share a given band
with probability J^8, where J is how much of their grams they share. A sketch reveals its
grams to anybody who compares it with sketches of guesses; so it never leaves the tenant, and a band leaves it as a
blinded input only.
"""

from __future__ import annotations

import hashlib
import random
from functools import cache

from pharoah_archetypes.canonical import Skeleton, parse
from pharoah_archetypes.fingerprint import Fingerprint
from pharoah_archetypes.ladder import rung_tokens
from pharoah_archetypes.rungs import Rung
from pharoah_archetypes.similarity import grams

BANDS = 16
_ROWS = 8
_PRIME = 2**61 - 1
_SEED = "pharoah/bands/v1"
RUNG = Rung.MINOR
"""How specific the software of a band is. Without sizes: other archetypes have other ones."""


def band_tokens(fingerprint: Fingerprint) -> list[tuple[str, ...]]:
    """The tokens of each band: features and software of the job, and the band in place of its archetype.

    Raises GrammarError for a fingerprint without a valid grammar.
    """
    software = [token for token in rung_tokens(fingerprint, RUNG) if not token.startswith("archetype=")]
    return [tuple(sorted([*software, f"band={name}"])) for name in bands(parse(fingerprint.grammar))]


def bands(skeleton: Skeleton) -> list[str]:
    """The names of the 16 bands, in order."""
    values = _minima(skeleton)
    parts = [values[at : at + _ROWS] for at in range(0, len(values), _ROWS)]
    return [
        f"{number}:{hashlib.blake2b(repr(part).encode(), digest_size=8).hexdigest()}"
        for number, part in enumerate(parts)
    ]


def _minima(skeleton: Skeleton) -> list[int]:
    # The second of two equal grams is another item than the first: counts matter.
    items = [f"{at} {' '.join(gram)}" for gram, count in grams(skeleton).items() for at in range(count)]
    hashes = [_hash(item) for item in items] or [_hash("")]
    return [min((a * x + b) % _PRIME for x in hashes) for a, b in _functions()]


def _hash(item: str) -> int:
    return int.from_bytes(hashlib.blake2b(item.encode(), digest_size=8).digest(), "big") % _PRIME


@cache
def _functions() -> list[tuple[int, int]]:
    """The same for everybody and all time: what protects a band is the key of the epoch it is sealed under."""
    chance = random.Random(_SEED)
    return [(chance.randrange(1, _PRIME), chance.randrange(_PRIME)) for _ in range(BANDS * _ROWS)]
