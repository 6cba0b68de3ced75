"""The canonical inputs that the rows about one job are sealed under, and whether they can be."""

from __future__ import annotations

from pharoah_archetypes import RUNGS, Fingerprint, canonical_input, rung_tokens
from pharoah_protocol.bounds import MAX_INPUT_BYTES
from pharoah_protocol.vocabulary import RowKind


def check_inputs(fingerprint: Fingerprint) -> None:
    """Raise ValueError for a fingerprint whose rows cannot be sealed, because an input is longer than RFC 9497 allows.

    The input of a band holds the tokens of the rung `minor` with a band in place of the archetype. A band has fewer
    characters than an archetype, so the check of the rungs covers it.
    """
    for rung in RUNGS:
        size = len(canonical_input(RowKind.ARCHETYPE, rung, rung_tokens(fingerprint, rung)))  # none is the shortest
        if size > MAX_INPUT_BYTES:
            raise ValueError(f"fingerprint: {size} bytes of input for its rung {rung}, at most {MAX_INPUT_BYTES}")
