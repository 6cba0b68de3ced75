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

MAX_REPEAT = 256
MAX_SEQUENCE = 20_000
"""Operator classes that a grammar may have when it is read, and the length of its phases times the number of their
different classes: texts come from agents as well, and a name takes 2 microseconds for each of the latter at the worst,
so 40 ms (timeit, two cores). The models of `evaluation.models.zoo` have less than a thousand."""

Element = str | tuple["Element", ...]
"""An operator class, or a repeated block of elements."""


def sequence_name(sequence: Sequence[str]) -> bytes:
    """The name of a sequence up to repetition: equal for `u v w` and `u v v w`, and only for what follows from that.

    Takes time proportional to the length times the number of different classes, at the worst; a model of few layers
    that differ takes far less. The empty sequence has the name b"".
    """
    classes = [
        operator_class for at, operator_class in enumerate(sequence) if at == 0 or operator_class != sequence[at - 1]
    ]
    return _Band(classes).name()


class _Band:
    """One sequence, and the names of its factors that are the longest for their start or for their end."""

    def __init__(self, sequence: list[str]) -> None:
        self._size, self._distinct = len(sequence), len(set(sequence))
        self._parts = [_prefix(operator_class.encode()) for operator_class in sequence]
        self._firsts = _firsts(sequence)
        self._lasts = _firsts(sequence[::-1])  # those of the mirrored sequence
        self._known: dict[tuple[bool, int, int], bytes] = {}

    def name(self) -> bytes:
        return self._factor(0, self._size, self._distinct)

    def _factor(self, start: int, end: int, distinct: int) -> bytes:
        """The name of the factor from `start` to `end`, which has this many different classes."""
        if distinct == 0:
            return b""
        after = self._firsts[start][distinct - 1]
        before = self._size - 1 - self._lasts[self._size - end][distinct - 1]
        prefix, suffix = self._anchor(False, start, distinct - 1), self._anchor(True, end, distinct - 1)
        content = _prefix(prefix) + self._parts[after] + self._parts[before] + _prefix(suffix)
        return hashlib.blake2b(content, digest_size=16).digest()

    def _anchor(self, at_end: bool, anchor: int, distinct: int) -> bytes:
        """The name of the longest factor with this many different classes that starts (or ends) at `anchor`. There is
        one more class beside it, so that it ends (or starts) where that one stands first."""
        key = (at_end, anchor, distinct)
        if (known := self._known.get(key)) is None:
            if at_end:
                known = self._factor(self._size - self._lasts[self._size - anchor][distinct], anchor, distinct)
            else:
                known = self._factor(anchor, self._firsts[anchor][distinct], distinct)
            self._known[key] = known
        return known


def _firsts(sequence: Sequence[str]) -> list[list[int]]:
    """For each start, the places at which a class stands for the first time from there on, in their order."""
    found: list[list[int]] = [[] for _ in sequence]
    places: list[int] = []
    first: dict[str, int] = {}
    for start in reversed(range(len(sequence))):
        places = places.copy()
        if (later := first.get(sequence[start])) is not None:
            places.remove(later)
        places.insert(0, start)
        first[sequence[start]] = start
        found[start] = places
    return found


def _prefix(part: bytes) -> bytes:
    return len(part).to_bytes(2, "big") + part


def fold(sequence: Sequence[Element]) -> list[Element]:
    """Fold repeats for display: neighbours of one class become one, then tandem repeats become blocks, shortest first.

    `a a b a b` becomes `(a b)+`. The result is a fixed point: folding it again changes nothing.
    """
    folded = list(sequence)
    period = 1
    while period <= min(MAX_REPEAT, len(folded) // 2):
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
        if len(open_blocks[-1]) > MAX_SEQUENCE:
            raise ValueError(f"more than {MAX_SEQUENCE:,} operator classes")
    if len(open_blocks) > 1:
        raise ValueError("`(` without `)+`")
    return open_blocks[0]
