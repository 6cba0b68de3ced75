"""Names of what runs, made by two key holders: neither can test guesses without the other.

The name of an input x is F(k1 + k2, x), the VOPRF of RFC 9497 under the sum of two keys: the tenant adds the two
evaluated elements, each with its proof. A name lives for a week. Longer, and the runs of one tenant could be followed
for longer; shorter, and too few organisations meet in it to learn anything (docs/exchange.md has both in figures).
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from pharoah_archetypes import Fingerprint, canonical_input, rung_tokens
from pharoah_protocol.voprf import group, protocol

PERIOD_SECONDS = 7 * 86_400
RUNG = "minor"
"""What a name is of: architecture, features and minor versions; sizes would part what belongs together."""
NAME_BYTES = 32
_ONE = (1).to_bytes(32, "little")


def period_at(now: float) -> int:
    """Periods are counted since 1970; 1 is the first."""
    return int(now // PERIOD_SECONDS) + 1


def named_input(fingerprint: Fingerprint) -> bytes:
    """What is named."""
    return canonical_input("name", RUNG, rung_tokens(fingerprint, RUNG))


def input_of(period: int, name: bytes) -> bytes:
    """The input that opens a row about a name, in tables of its period."""
    return canonical_input("name", RUNG, (f"period={period}", f"name={name.hex()}"))


@dataclass(frozen=True)
class NameQuestion:
    """One blinded input, the same for both key holders."""

    value: bytes
    scalar: bytes
    blinded: bytes

    def name(self, publics: Sequence[bytes], answers: Sequence[tuple[bytes, bytes]]) -> bytes:
        """The name, from each holder's (evaluated element, proof). Raises ProofError, GroupError."""
        for public, (evaluated, proof) in zip(publics, answers, strict=True):
            protocol.verify(public, [self.blinded], [evaluated], proof)
        total = group.weighted_sum([_ONE] * len(answers), [evaluated for evaluated, _ in answers])
        return protocol.finalize(self.value, self.scalar, total)[:NAME_BYTES]


def ask(fingerprint: Fingerprint | None) -> NameQuestion:
    """For the name of a job; without one for a name that means nothing, which looks the same."""
    value = named_input(fingerprint) if fingerprint else secrets.token_bytes(32)
    return NameQuestion(value, *protocol.blind(value))
