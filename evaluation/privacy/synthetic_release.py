"""A synthetic release: ten thousand archetypes, how often each is run (Zipf), and a provider's rows about them.

The choice of jobs is synthetic; their grammars are those of the catalogue, and the code that is shipped makes their
inputs and rows.
"""

from __future__ import annotations

import random
from functools import cached_property
from itertools import accumulate

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from pharoah_archetypes import Fingerprint, rung_tokens
from pharoah_archetypes.catalogue import catalogue
from pharoah_learning.release import ClassKey, LearnedRow, Release, SealInputs
from pharoah_learning.sealing import Epoch, seal
from pharoah_protocol.vocabulary import Outcome, Rung, Scope, Severity

ARCHETYPES = 10_000
ZIPF = 1.0
GROUPS = (
    ClassKey(scope=Scope.DEVICE, group_id="gpu"),
    ClassKey(scope=Scope.SERVER, group_id="a"),
    ClassKey(scope=Scope.SERVER, group_id="b"),
)
KEY = Ed25519PrivateKey.from_private_bytes(b"u" * 32)


class Universe:
    """Archetypes by rank: number 0 is run most."""

    def __init__(self, seed: int, archetypes: int = ARCHETYPES) -> None:
        chance = random.Random(seed)
        grammars = [entry.skeleton.text for entry in catalogue().values()]
        self.chance = chance
        self.jobs = [_job(chance, grammars) for _ in range(archetypes)]
        weights = [1 / (rank + 1) ** ZIPF for rank in range(archetypes)]
        self.prior = [weight / sum(weights) for weight in weights]
        self._cumulative = list(accumulate(self.prior))

    def draw(self) -> int:
        """The rank of a job that a tenant runs."""
        return self.chance.choices(range(len(self.jobs)), cum_weights=self._cumulative)[0]

    @cached_property
    def release(self) -> Release:
        """Two thirds of the archetypes are known to work, a third to fail, on every class."""
        rows = [self.row(rank, scope, group) for scope, group in GROUPS for rank in range(len(self.jobs))]
        return Release(1, tuple(rows))

    def row(self, rank: int, scope: Scope, group: str) -> LearnedRow:
        tokens = rung_tokens(self.jobs[rank], "exact")
        fails = rank % 3 == 0
        return LearnedRow(
            scope=scope,
            group_id=group,
            rung=Rung.EXACT,
            tokens=tokens,
            severity=Severity.BLOCK if fails else Severity.OK,
            outcome=Outcome.ERROR if fails else Outcome.OK,
            failures=6 if fails else 0,
            runs=6,
            base_failures=0,
            base_runs=20,
            remedy=1,
        )

    def epoch(self, number: int = 1) -> Epoch:
        """Sealed under a seed that follows from the number."""
        return seal(SealInputs(number, self.release, GROUPS, 1_000_000), number.to_bytes(32, "big"), KEY)


def _job(chance: random.Random, grammars: list[str]) -> Fingerprint:
    name = chance.randbytes(16).hex()
    sizes = {"parameters": chance.randrange(10**6, 10**11), "activations": chance.randrange(10**6, 10**11)}
    features = {"dtype": chance.choice(["float32", "bfloat16", "float16"])}
    return Fingerprint(name, name, chance.choice(grammars), features, sizes, {"torch": "2.13.0"})
