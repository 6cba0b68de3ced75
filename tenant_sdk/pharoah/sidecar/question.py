"""One question, ready before its first message leaves: what takes a different time for each job happens here."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pharoah_archetypes import Fingerprint
from pharoah_protocol.pseudonyms import Pseudonym, PseudonymQuery, blind_pseudonym
from pharoah_protocol.tables.query import BlindedQuery, blind, inputs_of


@dataclass(frozen=True)
class Question:
    """The inputs of a job with their blinds and the padding, and the blinded input of its pseudonym."""

    batch: BlindedQuery
    name: PseudonymQuery | None
    """None where outcomes are not shared."""
    fingerprint: Fingerprint | None = None
    """None for a question about nothing."""

    def with_pseudonym(self, pseudonym: Pseudonym | None) -> Question:
        """The question with the pseudonym that was made, or the same work for a job that has none."""
        return replace(self, batch=self.batch.with_pseudonym(pseudonym))

    def on_node(self, node: str) -> Question:
        """The question about the job on the node that it is offered, or the same work for no job."""
        return replace(self, batch=self.batch.on_node(self.fingerprint, node))


def prepare(fingerprint: Fingerprint | None, share_outcomes: bool = False) -> Question:
    """The question about a job; None asks about nothing, which costs the same products.

    Raises ValueError for a fingerprint whose inputs cannot be made.
    """
    inputs = inputs_of(fingerprint) if fingerprint else ()
    return Question(blind(inputs), blind_pseudonym(fingerprint) if share_outcomes else None, fingerprint)
