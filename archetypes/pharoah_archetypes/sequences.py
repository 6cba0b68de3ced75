"""Sequences of operator classes: folded for people, named up to repetition.

Depth must not matter: a model of one layer and its sibling of a hundred are one archetype. So `u v w` and `u v v w`
must have one name, for all sequences u, v, w. The finest congruence with that property is the free band (the free
semigroup with xx = x), so names are names of its elements; anything finer would separate some depths. Its word problem
is solved by Green and Rees (On semigroups in which x^r = x, 1952): two sequences are equal if and only if they agree in
the longest prefix with one class less, in the class after it, and in the mirror image of both.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

LONGEST_REPEAT = 256
LONGEST_SEQUENCE = 20_000
"""Operator classes of one phase that a grammar may have when it is read: naming them takes half a second (timeit),
and texts come from agents as well."""

Element = str | tuple["Element", ...]
"""An operator class, or a repeated block of elements."""


def sequence_name(sequence: Sequence[str]) -> bytes:
    """The name of a sequence up to repetition: equal for `u v w` and `u v v w`, and only for what follows from that.

    Takes time proportional to the length times the number of different classes. The empty sequence has the name b"".
    """
    classes = [
        operator_class for at, operator_class in enumerate(sequence) if at == 0 or operator_class != sequence[at - 1]
    ]
    return _Band(classes).name()


class _Band:
    """One sequence, and the names of its factors that are the longest for their start or for their end."""

    def __init__(self, sequence: list[str]) -> None:
        self._sequence = sequence
        self._distinct = len(set(sequence))
        # reach[k][i]: the end of the longest factor that starts at i and has k different classes.
        self._reach = [_reach(sequence, k) for k in range(self._distinct)]
        mirrored = [_reach(sequence[::-1], k) for k in range(self._distinct)]
        size = len(sequence)
        self._origin = [[size - end for end in reversed(ends)] for ends in mirrored]
        self._known: dict[tuple[bool, int, int], bytes] = {}

    def name(self) -> bytes:
        return self._factor(0, len(self._sequence), self._distinct)

    def _factor(self, start: int, end: int, distinct: int) -> bytes:
        """The name of sequence[start:end], which has this many different classes."""
        if distinct == 0:
            return b""
        after = self._reach[distinct - 1][start]
        before = self._origin[distinct - 1][end]
        digest = hashlib.blake2b(digest_size=16)
        for part in (
            self._anchored(False, start, distinct - 1),
            self._sequence[after].encode(),
            self._sequence[before - 1].encode(),
            self._anchored(True, end, distinct - 1),
        ):
            digest.update(len(part).to_bytes(2, "big") + part)
        return digest.digest()

    def _anchored(self, at_end: bool, anchor: int, distinct: int) -> bytes:
        """The name of the longest factor with this many different classes that starts (or ends) at `anchor`."""
        key = (at_end, anchor, distinct)
        if key not in self._known:
            if at_end:
                self._known[key] = self._factor(self._origin[distinct][anchor], anchor, distinct)
            else:
                self._known[key] = self._factor(anchor, self._reach[distinct][anchor], distinct)
        return self._known[key]


def _reach(sequence: Sequence[str], distinct: int) -> list[int]:
    """For each start (and the end of the sequence) where the longest factor with so many different classes ends."""
    ends, inside, end = [], dict.fromkeys(sequence, 0), 0
    held = 0
    for start in range(len(sequence) + 1):
        end = max(end, start)
        while end < len(sequence) and (inside[sequence[end]] or held < distinct):
            held += inside[sequence[end]] == 0
            inside[sequence[end]] += 1
            end += 1
        ends.append(end)
        if start < end:
            inside[sequence[start]] -= 1
            held -= inside[sequence[start]] == 0
    return ends


def fold(sequence: Sequence[Element]) -> list[Element]:
    """Fold repeats for display: neighbours of one class become one, then tandem repeats become blocks, shortest first.

    `a a b a b` becomes `(a b)+`. The result is a fixed point: folding it again changes nothing.
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


def render(elements: Iterable[Element]) -> str:
    """The grammar of some elements as people read it."""
    return " ".join(e if isinstance(e, str) else f"({render(e)})+" for e in elements)


def flatten(elements: Iterable[Element]) -> list[str]:
    """The operator classes of some elements, each block once."""
    return [operator_class for e in elements for operator_class in ([e] if isinstance(e, str) else flatten(e))]


def read_sequence(grammar: str) -> list[str]:
    """Read a rendered grammar as a sequence, with each block twice, so that folding finds it. Raises ValueError."""
    open_blocks: list[list[str]] = [[]]
    for token in grammar.replace("(", " ( ").replace(")+", " )+ ").split():
        if token == "(":
            open_blocks.append([])
        elif token != ")+":
            open_blocks[-1].append(token)
        elif len(open_blocks) == 1:
            raise ValueError("`)+` closes nothing")
        else:
            block = open_blocks.pop()
            open_blocks[-1] += block * 2
        if len(open_blocks[-1]) > LONGEST_SEQUENCE:
            raise ValueError(f"more than {LONGEST_SEQUENCE:,} operator classes")
    if len(open_blocks) > 1:
        raise ValueError("`(` without `)+`")
    return open_blocks[0]
