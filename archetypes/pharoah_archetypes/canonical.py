"""Canonical form: the operators of one step become a skeleton, and a skeleton has a name.

Dropped: views, copies, casts, elementwise arithmetic, sizes, counts. Kept: the classes of `vocabulary.toml` in the
order of the forward pass, where the backward pass computes and communicates, and traits of the step as a whole. The
name (the archetype) does not change with the number of repeats of any part, one included.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property

from pharoah_archetypes.dataflow import follow
from pharoah_archetypes.operators import BACKWARD, FORWARD, OPTIMIZER, Operator
from pharoah_archetypes.sequences import MAX_SEQUENCE, fold, read_sequence, render, sequence_name
from pharoah_archetypes.vocabulary import OperatorClass, vocabulary

PHASES = (FORWARD, BACKWARD, OPTIMIZER)
"""The phases that a grammar has a line for."""
MAX_TRAITS_BYTES = 0xFFFF
"""The traits of one grammar, joined, take at most so many bytes: their length goes into the name in two bytes. A step
of a real job has fewer than ten traits, of a few bytes each."""
_ATTENTION = (OperatorClass.ATTENTION, OperatorClass.CROSS_ATTENTION)


class GrammarError(ValueError):
    """A text that is not a grammar; the message names the line and the problem."""


@dataclass(frozen=True)
class Skeleton:
    """One step after the reduction, with what the reduction noticed.

    Equal when the archetype is equal; features and unknown operators are what a reader or a signature adds.
    """

    forward: tuple[str, ...]
    backward: tuple[str, ...] = ()
    update: tuple[str, ...] = ()
    """Collectives from the last backward pass to the end of the optimizer's step."""
    traits: frozenset[str] = frozenset()
    features: dict[str, str] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()
    """Operators outside of torch that no class covers (custom kernels)."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Skeleton) and self.archetype == other.archetype

    def __hash__(self) -> int:
        return hash(self.archetype)

    @cached_property
    def text(self) -> str:
        """The grammar, one line per phase, repeats folded; then the traits: `with: causal norm=rms`."""
        lines = [f"{phase}: {render(fold(sequence))}" for phase, sequence in self.phases.items() if sequence]
        return "\n".join([*lines, *([f"with: {_join(self.traits)}"] if self.traits else [])])

    @cached_property
    def archetype(self) -> str:
        """32 hex digits that name the structure."""
        return _name(b"pharoah/skeleton/v3", *map(sequence_name, self.phases.values()), _join(self.traits).encode())

    @cached_property
    def compute(self) -> str:
        """32 hex digits that name what can also be seen of a compiled step: kinds of contraction, and collectives.

        A compiler orders independent branches as it likes, and may write attention out or join it.
        """
        known = vocabulary()
        kinds = {
            OperatorClass.BATCHED_PRODUCT.value if name in _ATTENTION else name
            for name in self.forward
            if name in known.compute
        }
        collectives = [name for sequence in self.phases.values() for name in sequence if name in known.collectives]
        return _name(b"pharoah/compute/v3", " ".join(sorted(kinds)).encode(), sequence_name(collectives))

    @cached_property
    def alone(self) -> Skeleton:
        """The same step on one device: without its collectives."""
        sent = vocabulary().collectives
        forward, backward = (tuple(x for x in sequence if x not in sent) for sequence in (self.forward, self.backward))
        return Skeleton(forward, backward, (), self.traits, self.features, self.unknown)

    @cached_property
    def answer(self) -> Skeleton:
        """What a job that serves computes of this step on one device: its forward pass without a loss."""
        left_out = vocabulary().collectives | vocabulary().losses
        return Skeleton(tuple(x for x in self.forward if x not in left_out), traits=self.traits)

    @cached_property
    def collectives(self) -> Skeleton:
        """What the step sends, whatever it computes between."""
        sent = vocabulary().collectives
        forward, backward, update = (
            tuple(x for x in sequence if x in sent) for sequence in (self.forward, self.backward, self.update)
        )
        return Skeleton(forward, backward, update)

    @property
    def phases(self) -> dict[str, tuple[str, ...]]:
        """The operator classes of each phase, in the order they ran."""
        return {FORWARD: self.forward, BACKWARD: self.backward, OPTIMIZER: self.update}


def canonicalize(operators: Iterable[Operator]) -> Skeleton:
    """Reduce the operators of one step, in the order they ran."""
    step = follow(operators)
    return Skeleton(
        tuple(step.forward),
        tuple(step.backward),
        tuple(step.update),
        frozenset(step.traits),
        step.features,
        tuple(step.unknown),
    )


def parse(text: str) -> Skeleton:
    """Read a grammar that `Skeleton.text` or a person wrote. Raises GrammarError."""
    found: dict[str, list[str]] = {}
    for line in text.strip().splitlines():
        name, colon, content = line.strip().partition(":")
        if not colon or name not in (*PHASES, "with") or name in found:
            raise GrammarError(f"line {line.strip()!r}: expected one line each of {', '.join(PHASES)} and with")
        try:
            found[name] = read_sequence(content)
        except ValueError as fault:
            raise GrammarError(f"line {line.strip()!r}: {fault}") from None
    traits = frozenset(found.pop("with", []))
    if (size := len(_join(traits).encode(errors="surrogatepass"))) > MAX_TRAITS_BYTES:
        raise GrammarError(f"with: {size} bytes of traits, at most {MAX_TRAITS_BYTES}")
    for name in [name for sequence in found.values() for name in sequence]:
        if name not in vocabulary().known_classes:
            raise GrammarError(f"{name!r} is not an operator class of the vocabulary")
    for name in found.get(OPTIMIZER, []):
        if name not in vocabulary().collectives:
            raise GrammarError(f"{name!r} is not a collective: {OPTIMIZER} holds nothing else")
    forward, backward, update = (tuple(found.get(phase, [])) for phase in PHASES)
    _check_size(forward, backward, update)
    return Skeleton(forward, backward, update, traits)


def _check_size(*phases: tuple[str, ...]) -> None:
    """Raise GrammarError for a grammar that takes long to name."""
    if (length := sum(map(len, phases))) > MAX_SEQUENCE:
        raise GrammarError(f"{length:,} operator classes, at most {MAX_SEQUENCE:,}")
    if (places := sum(len(phase) * len(set(phase)) for phase in phases)) > MAX_SEQUENCE:
        raise GrammarError(f"{places:,} operator classes times different ones, at most {MAX_SEQUENCE:,}")


def _join(traits: Iterable[str]) -> str:
    return " ".join(sorted(traits))


def _name(*parts: bytes) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        digest.update(len(part).to_bytes(2, "big") + part)
    return digest.hexdigest()
