"""How similar two skeletons are, which named archetypes are the nearest, and what differs."""

from __future__ import annotations

from collections import Counter
from difflib import SequenceMatcher
from typing import NamedTuple

from pharoah_archetypes.canonical import PHASES, Skeleton
from pharoah_archetypes.catalogue import Archetype, catalogue, communication_patterns
from pharoah_archetypes.sequences import flatten, fold
from pharoah_archetypes.vocabulary import vocabulary


class Neighbour(NamedTuple):
    """A named archetype that is close to a skeleton."""

    archetype: Archetype
    similarity: float
    """0 to 1; 1.0 is the same archetype, collectives apart."""


def nearest(skeleton: Skeleton, count: int = 1) -> list[Neighbour]:
    """The closest named archetypes with their similarity, closest first.

    What a job sends is left out of it. A step without a backward pass is compared with the answers that archetypes
    give: with their forward passes without the loss.
    """
    trains = bool(skeleton.backward)
    alone = skeleton.alone if trains else skeleton.answer
    known = {id: entry.skeleton.alone if trains else entry.skeleton.answer for id, entry in catalogue().items()}
    scored = [(known[id] == alone, similarity(alone, known[id]), entry) for id, entry in catalogue().items()]
    scored.sort(key=lambda score: (score[0], score[1]), reverse=True)
    return [
        Neighbour(archetype=entry, similarity=1.0 if same else likeness) for same, likeness, entry in scored[:count]
    ]


def describe_sent(skeleton: Skeleton) -> str:
    """What a job sends, by phase, each kind once: `fwd AG, bwd AG RS`; empty for a job on one device."""
    collectives = vocabulary().collectives
    kinds = {
        phase: dict.fromkeys(x for x in sequence if x in collectives) for phase, sequence in skeleton.phases.items()
    }
    return ", ".join(f"{phase} {' '.join(found)}" for phase, found in kinds.items() if found)


def pattern_of(skeleton: Skeleton) -> Archetype | None:
    """The named communication pattern of a job; None for one without a name, and for a job that sends nothing."""
    sent = skeleton.collectives
    return next((entry for entry in communication_patterns().values() if entry.skeleton == sent), None)


def similarity(left: Skeleton, right: Skeleton) -> float:
    """0 to 1: cosine of the 3-gram counts of the folded sequences, with the traits as grams of their own."""
    a, b = grams(left), grams(right)
    dot = sum(count * b[gram] for gram, count in a.items())
    norm = (sum(c * c for c in a.values()) * sum(c * c for c in b.values())) ** 0.5
    return dot / norm if norm else 0.0


def differences(left: Skeleton, right: Skeleton) -> list[str]:
    """What turns `left` into `right`, one line a change; empty when nothing folds differently.

    `fwd: rnn -> gemm attn` replaces, `fwd: + act` is only in `right`, `with: - causal` only in `left`.
    """
    lines: list[str] = []
    for phase in PHASES:
        a, b = _once(left, phase), _once(right, phase)
        for change, i, j, m, n in SequenceMatcher(None, a, b, autojunk=False).get_opcodes():
            before, after = " ".join(a[i:j]), " ".join(b[m:n])
            if change == "replace":
                lines.append(f"{phase}: {before} -> {after}")
            elif change != "equal":
                lines.append(f"{phase}: {'-' if before else '+'} {before or after}")
    lines += [f"with: - {trait}" for trait in sorted(left.traits - right.traits)]
    return lines + [f"with: + {trait}" for trait in sorted(right.traits - left.traits)]


def _once(skeleton: Skeleton, phase: str) -> list[str]:
    """The folded sequence of a phase, with each repeat once."""
    return flatten(fold(skeleton.phases[phase]))


def grams(skeleton: Skeleton) -> Counter[tuple[str, ...]]:
    """Traits, and triples of neighbours in each phase's folded sequence."""
    grams: Counter[tuple[str, ...]] = Counter((trait,) for trait in skeleton.traits)
    for phase in PHASES:
        padded = [f"^{phase}", *_once(skeleton, phase), "$"]
        grams.update(zip(padded, padded[1:], padded[2:], strict=False))
    return grams
