"""The query of a tenant: always 64 inputs, whatever it runs. Rungs of the ladder, then bands, then filler."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from pharoah_archetypes import RUNGS, Fingerprint, band_tokens, canonical_input, rung_tokens
from pharoah_protocol import pseudonyms
from pharoah_protocol.pseudonyms import Pseudonym
from pharoah_protocol.vocabulary import RowKind, Rung
from pharoah_protocol.voprf import protocol

BATCH_ITEMS = 64


@dataclass(frozen=True)
class QueryItem:
    """One input of a query."""

    kind: RowKind
    rung: Rung
    value: bytes
    """The canonical input."""


@dataclass(frozen=True)
class BlindedQuery:
    """A batch as it is sent, and the secrets that open its answer."""

    inputs: tuple[QueryItem, ...]
    scalars: tuple[bytes, ...]
    """Blinds of the inputs; fillers have none."""
    blinded: tuple[bytes, ...]
    """All 64 elements, those of the inputs first. The order reveals nothing: blinded elements are uniform."""

    def outputs(self, evaluated: Sequence[bytes]) -> list[bytes]:
        """One VOPRF output per input. Raises GroupError."""
        return [
            protocol.finalize(item.value, scalar, element)
            for item, scalar, element in zip(self.inputs, self.scalars, evaluated, strict=False)
        ]


def inputs_of(fingerprint: Fingerprint, pseudonym: Pseudonym | None = None) -> tuple[QueryItem, ...]:
    """The inputs for a job: always all rungs and all bands, and its pseudonym where it has one."""
    items = [_item(RowKind.ARCHETYPE, Rung(rung), rung_tokens(fingerprint, rung)) for rung in RUNGS]
    items += [_item(RowKind.BAND, Rung.MINOR, band) for band in band_tokens(fingerprint)]
    if pseudonym:
        items.append(
            QueryItem(RowKind.PSEUDONYM, pseudonyms.RUNG, pseudonyms.row_input(pseudonym.period, pseudonym.value))
        )
    return tuple(items)


def _item(kind: RowKind, rung: Rung, tokens: Sequence[str]) -> QueryItem:
    return QueryItem(kind, rung, canonical_input(kind, rung, tokens))


def blind(inputs: Sequence[QueryItem]) -> BlindedQuery:
    """Blind the inputs of a job and fill the batch. One blinding serves all classes of an offer."""
    pairs = [protocol.blind(item.value) for item in inputs]
    elements = [element for _, element in pairs] + [protocol.filler() for _ in range(BATCH_ITEMS - len(pairs))]
    return BlindedQuery(tuple(inputs), tuple(scalar for scalar, _ in pairs), tuple(elements))


def keyed_hashes(inputs: Sequence[QueryItem], key: bytes) -> list[bytes]:
    """Hashed mode: one token per input, and random tokens up to 64."""
    tokens = [hmac.digest(key, item.value, "sha256") for item in inputs]
    return tokens + [secrets.token_bytes(32) for _ in range(BATCH_ITEMS - len(tokens))]
