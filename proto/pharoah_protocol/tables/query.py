"""The query of a tenant: always 64 elements, whatever it runs. Rungs of the ladder, bands, the pseudonym, the job on
the offered node, then padding.

Every query also costs the same work: it has `QUESTION_ITEMS` items, and items of random inputs take the places that the
job leaves empty. A question about nothing has only such items (docs/adr/0025).
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pharoah_archetypes import RUNGS, Fingerprint, band_tokens, canonical_input, rung_tokens
from pharoah_archetypes.sketch import BANDS
from pharoah_protocol import pseudonyms
from pharoah_protocol.pseudonyms import Pseudonym
from pharoah_protocol.vocabulary import RowKind, Rung
from pharoah_protocol.voprf import protocol

BATCH_ITEMS = 64
NODE_RUNGS = (Rung.EXACT, Rung.MINOR)
"""Rungs on which something may be known of one node."""
_PSEUDONYM_PLACE = len(RUNGS) + BANDS
_NODE_PLACE = _PSEUDONYM_PLACE + 1
QUESTION_ITEMS = _NODE_PLACE + len(NODE_RUNGS)
"""Items of every question: all rungs, all bands, one pseudonym, and the job on the offered node. Each costs a blinding
and one output per class."""
_RANDOM_INPUT_BYTES = 32
_NODE = "node="


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
    """`QUESTION_ITEMS` items: those of the job first, then items of random inputs, which open nothing."""
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

    def with_pseudonym(self, pseudonym: Pseudonym | None) -> BlindedQuery:
        """The batch with a pseudonym in its place, or with another random item there: the same work."""
        return self._with(_PSEUDONYM_PLACE, [_pseudonym_item(pseudonym) if pseudonym else random_item()])

    def on_node(self, fingerprint: Fingerprint | None, node: str) -> BlindedQuery:
        """The batch with the job on the node of this name, or with other random items for no job: the same work."""
        return self._with(_NODE_PLACE, [_node_item(fingerprint, rung, node) for rung in NODE_RUNGS])

    def _with(self, place: int, items: Sequence[QueryItem]) -> BlindedQuery:
        """The batch with other items from a place on."""
        pairs, end = [protocol.blind(item.value) for item in items], place + len(items)
        return replace(
            self,
            inputs=(*self.inputs[:place], *items, *self.inputs[end:]),
            scalars=(*self.scalars[:place], *(scalar for scalar, _ in pairs), *self.scalars[end:]),
            blinded=(*self.blinded[:place], *(element for _, element in pairs), *self.blinded[end:]),
        )


def inputs_of(fingerprint: Fingerprint, pseudonym: Pseudonym | None = None) -> tuple[QueryItem, ...]:
    """The inputs for a job: always all rungs and all bands, and its pseudonym where it has one. A random item takes the
    place of a rung that the job lacks."""
    rungs = ((rung, rung_tokens(fingerprint, rung)) for rung in RUNGS)
    items = [_item(RowKind.ARCHETYPE, rung, tokens) if tokens else random_item() for rung, tokens in rungs]
    items += [_item(RowKind.BAND, Rung.MINOR, band) for band in band_tokens(fingerprint)]
    if pseudonym:
        items.append(_pseudonym_item(pseudonym))
    return tuple(items)


def _item(kind: RowKind, rung: Rung, tokens: Sequence[str]) -> QueryItem:
    return QueryItem(kind, rung, canonical_input(kind, rung, tokens))


def _pseudonym_item(pseudonym: Pseudonym) -> QueryItem:
    return QueryItem(RowKind.PSEUDONYM, pseudonyms.RUNG, pseudonyms.row_input(pseudonym.period, pseudonym.value))


def _node_item(fingerprint: Fingerprint | None, rung: Rung, node: str) -> QueryItem:
    tokens = rung_tokens(fingerprint, rung) if fingerprint else ()
    return _item(RowKind.NODE, rung, node_tokens(tokens, node)) if tokens else random_item()


def node_tokens(tokens: Sequence[str], node: str) -> tuple[str, ...]:
    """The tokens of a rung on the node of this name: what a row about one node is sealed under."""
    return (*tokens, f"{_NODE}{node}")


def node_of(tokens: Sequence[str]) -> str:
    """The node that a row about one node is about; empty for another row."""
    return next((token.removeprefix(_NODE) for token in tokens if token.startswith(_NODE)), "")


def random_item() -> QueryItem:
    """An item that no row can be about: it takes the place of one that a job does not have."""
    return QueryItem(RowKind.PSEUDONYM, pseudonyms.RUNG, secrets.token_bytes(_RANDOM_INPUT_BYTES))


def blind(inputs: Sequence[QueryItem]) -> BlindedQuery:
    """Blind the inputs of a job and fill the batch. One blinding serves all classes of an offer.

    The work is the same for any job, and for no job at all. Raises ValueError for more items than a question has.
    """
    if len(inputs) > QUESTION_ITEMS:
        raise ValueError(f"inputs: {len(inputs)}, a question has {QUESTION_ITEMS}")
    items = (*inputs, *(random_item() for _ in range(QUESTION_ITEMS - len(inputs))))
    pairs = [protocol.blind(item.value) for item in items]
    fillers = (protocol.filler() for _ in range(BATCH_ITEMS - QUESTION_ITEMS))
    return BlindedQuery(items, tuple(scalar for scalar, _ in pairs), (*(element for _, element in pairs), *fillers))


def compute_keyed_hashes(inputs: Sequence[QueryItem], key: bytes) -> list[bytes]:
    """Hashed mode: one token per input, and random tokens up to 64."""
    tokens = [hmac.digest(key, item.value, "sha256") for item in inputs]
    return tokens + [secrets.token_bytes(32) for _ in range(BATCH_ITEMS - len(tokens))]
