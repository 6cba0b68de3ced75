"""Canonical form: an operator stream of one step becomes a skeleton.

Dropped: views, copies, casts, elementwise arithmetic and layer norms (all of them differ between devices, dtypes and
releases for the same job). Kept: the classes of `vocabulary.toml`, in order, per phase. Repeats are folded from short
to long, so that depth disappears; the counts are not part of the form.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from pharoah_archetypes.vocabulary import PHASES, Vocabulary, vocabulary

LONGEST_REPEAT = 256

Element = str | tuple["Element", ...]
"""A class name, or a repeated block of elements."""


@dataclass(frozen=True, slots=True)
class Operator:
    """One dispatched operator: its packet name (`aten.mm`, no overload) and the phase it ran in."""

    name: str
    phase: str


@dataclass(frozen=True)
class Skeleton:
    """What remains of one step, and what the reduction noticed on the way.

    Equality and hash look at the structure only; features and counts are what a reader or a signature adds to it.
    """

    phases: tuple[tuple[str, tuple[Element, ...]], ...]
    features: dict[str, str] = field(default_factory=dict, compare=False)
    unknown: tuple[str, ...] = field(default=(), compare=False)
    """Operators outside `aten` and `c10d` that no class covers (custom kernels)."""

    @cached_property
    def text(self) -> str:
        """The grammar, one line per phase: `fwd: emb (gemm attn gemm act)+ gemm loss`."""
        return "\n".join(f"{name}: {render(elements)}" for name, elements in self.phases if elements)

    @cached_property
    def archetype(self) -> str:
        """32 hex digits that name the structure."""
        return hashlib.blake2b(f"pharoah/skeleton/v1\n{self.text}".encode(), digest_size=16).hexdigest()


def canonicalize(operators: Iterable[Operator]) -> Skeleton:
    """Reduce the operators of one step. Order matters, `phase` is `fwd` or `bwd`; other phases are left out."""
    words = vocabulary()
    letters: dict[str, list[str]] = {phase: [] for phase in PHASES}
    features: dict[str, str] = {}
    unknown: dict[str, None] = {}
    for operator in operators:
        if operator.phase not in letters:
            continue
        letter = words.classes.get(operator.name)
        if letter is not None:
            letters[operator.phase].append(letter)
            features.update(_kernel_features(letter, operator.name, words))
        elif operator.name.partition(".")[0] not in ("aten", "c10d", "prim", "prims", "profiler"):
            letters[operator.phase].append("ext")
            unknown[operator.name] = None
    for rewrite in words.rewrites:
        letters[rewrite.phase], hits = _replace(letters[rewrite.phase], rewrite.source, rewrite.target)
        if hits:
            features.update(rewrite.features)
    phases = tuple((phase, tuple(fold(letters[phase]))) for phase in PHASES)
    return Skeleton(phases, features, tuple(unknown))


def fold(sequence: Sequence[Element]) -> list[Element]:
    """Fold repeats: neighbours of one class become one, then tandem repeats become blocks, shortest period first.

    `a a b a b` becomes `(a b)+`. Without the first rule a block that begins as it ends (`gemm attn gemm`) would fold
    differently at every depth. The result is a fixed point: folding it again changes nothing.
    """
    folded = list(sequence)
    period = 1
    while period <= min(LONGEST_REPEAT, len(folded) // 2):
        shorter = _fold_period(folded, period)
        if len(shorter) == len(folded):
            period += 1
        else:
            # A fold can bring two equal shorter blocks side by side: begin again.
            folded, period = shorter, 1
    return folded


def _fold_period(sequence: list[Element], period: int) -> list[Element]:
    folded: list[Element] = []
    at = 0
    while at < len(sequence):
        block = sequence[at : at + period]
        end = at + period
        while sequence[end : end + period] == block:
            end += period
        if end > at + period and len(block) == period:
            folded.append(block[0] if period == 1 else tuple(block))
            at = end
        else:
            folded.append(sequence[at])
            at += 1
    return folded


def _replace(letters: list[str], source: tuple[str, ...], target: str) -> tuple[list[str], int]:
    replaced: list[str] = []
    at = hits = 0
    while at < len(letters):
        if tuple(letters[at : at + len(source)]) == source:
            replaced.append(target)
            at += len(source)
            hits += 1
        else:
            replaced.append(letters[at])
            at += 1
    return replaced, hits


def _kernel_features(letter: str, name: str, words: Vocabulary) -> dict[str, str]:
    if letter != "attn":
        return {}
    return {
        feature: value for feature, values in words.kernels.items() for value, part in values.items() if part in name
    }


def render(elements: Iterable[Element]) -> str:
    """The grammar of some elements as people read it."""
    return " ".join(e if isinstance(e, str) else f"({render(e)})+" for e in elements)
