"""What a tenant asks: always 64 inputs, whatever it runs. Rungs of the ladder first, then bands, the rest is filler."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from pharoah_archetypes import RUNGS, Fingerprint, band_tokens, canonical_input, rung_tokens
from pharoah_protocol import pseudonyms
from pharoah_protocol.voprf import protocol

BATCH_ITEMS = 64


@dataclass(frozen=True)
class QueryItem:
    """One thing that is asked about."""

    kind: str
    """`arch` for a rung of the ladder, `band` for what near duplicates share, `name` for what tenants tell."""
    rung: str
    value: bytes


@dataclass(frozen=True)
class BlindedQuery:
    """A batch as it is sent, and what only the tenant knows of it."""

    inputs: tuple[QueryItem, ...]
    scalars: tuple[bytes, ...]
    """Blinds of the inputs; fillers have none."""
    blinded: tuple[bytes, ...]
    """All 64 elements; the inputs' come first, which says nothing: any element looks like any other."""

    def outputs(self, evaluated: Sequence[bytes]) -> list[bytes]:
        """One VOPRF output per input. Raises GroupError."""
        return [
            protocol.finalize(asked.value, scalar, element)
            for asked, scalar, element in zip(self.inputs, self.scalars, evaluated, strict=False)
        ]


def inputs_of(fingerprint: Fingerprint, pseudonym: tuple[int, bytes] | None = None) -> tuple[QueryItem, ...]:
    """What is asked about a job: always all rungs and all bands, and its (period, pseudonym) where it has one."""
    rungs = [QueryItem("arch", rung, canonical_input("arch", rung, rung_tokens(fingerprint, rung))) for rung in RUNGS]
    bands = [QueryItem("band", "minor", canonical_input("band", "minor", band)) for band in band_tokens(fingerprint)]
    shared = [QueryItem("name", pseudonyms.RUNG, pseudonyms.row_input(*pseudonym))] if pseudonym else []
    return (*rungs, *bands, *shared)


def blind(inputs: Sequence[QueryItem]) -> BlindedQuery:
    """Blind a job's inputs and fill up. One blinding serves all classes of an offer."""
    pairs = [protocol.blind(asked.value) for asked in inputs]
    elements = [element for _, element in pairs] + [protocol.filler() for _ in range(BATCH_ITEMS - len(pairs))]
    return BlindedQuery(tuple(inputs), tuple(scalar for scalar, _ in pairs), tuple(elements))


def keyed_hashes(inputs: Sequence[QueryItem], key: bytes) -> list[bytes]:
    """Hashed mode: one token per input, and random ones up to 64."""
    tokens = [hmac.digest(key, asked.value, "sha256") for asked in inputs]
    return tokens + [secrets.token_bytes(32) for _ in range(BATCH_ITEMS - len(tokens))]
