"""Pseudonyms of jobs, made with the keys of two holders: neither can test guesses without the other.

The pseudonym of an input x is F(k1 + k2, x), the VOPRF of RFC 9497 under the sum of two keys: the tenant adds the two
evaluated elements, each with its proof. A pseudonym lives for a week. Longer, and the runs of one tenant could be
followed for longer; shorter, and too few organisations meet in it to learn anything (docs/exchange.md has figures).
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pharoah_archetypes import Fingerprint, canonical_input, rung_tokens
from pharoah_protocol.vocabulary import RowKind, Rung
from pharoah_protocol.voprf import group, protocol

PERIOD_SECONDS = 7 * 86_400
RUNG = Rung.MINOR
"""The rung that a pseudonym stands for: architecture, features and minor versions. A rung with sizes would separate
jobs that fail for the same reason."""
PSEUDONYM_BYTES = 32
_ONE = (1).to_bytes(32, "little")


def period_at(now: float) -> int:
    """Periods are counted since 1970; 1 is the first."""
    return int(now // PERIOD_SECONDS) + 1


def pseudonym_input(fingerprint: Fingerprint) -> bytes:
    """The input of the VOPRF for a job."""
    return canonical_input(RowKind.PSEUDONYM, RUNG, rung_tokens(fingerprint, RUNG))


def row_input(period: int, pseudonym: bytes) -> bytes:
    """The input that opens a row about a pseudonym, in tables of its period."""
    return canonical_input(RowKind.PSEUDONYM, RUNG, (f"period={period}", f"name={pseudonym.hex()}"))


class Pseudonym(NamedTuple):
    """The pseudonym of a job in one period."""

    period: int
    """Number of the period, as `period_at` counts."""
    value: bytes


class EvaluatedPseudonym(NamedTuple):
    """The answer of one key holder to a query."""

    element: bytes
    """The blinded element times the holder's key."""
    proof: bytes


@dataclass(frozen=True)
class PseudonymQuery:
    """One blinded input, the same for both key holders."""

    value: bytes
    scalar: bytes
    blinded: bytes

    def pseudonym(self, publics: Sequence[bytes], answers: Sequence[EvaluatedPseudonym]) -> bytes:
        """The pseudonym, from the answer of each holder. Raises ProofError, GroupError."""
        for public, (evaluated, proof) in zip(publics, answers, strict=True):
            protocol.verify(public, [self.blinded], [evaluated], proof)
        total = group.compute_weighted_sum([_ONE] * len(answers), [evaluated for evaluated, _ in answers])
        return protocol.finalize(self.value, self.scalar, total)[:PSEUDONYM_BYTES]


def blind_pseudonym(fingerprint: Fingerprint | None) -> PseudonymQuery:
    """A query for the pseudonym of a job; without a fingerprint for a random one, which looks the same."""
    value = pseudonym_input(fingerprint) if fingerprint else secrets.token_bytes(32)
    return PseudonymQuery(value, *protocol.blind(value))
