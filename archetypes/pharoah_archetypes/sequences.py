"""Words over operator classes: folded for people, named up to repetition.

Depth must not matter: a model of one layer and its sibling of a hundred are one archetype. So `u v w` and `u v v w`
must have one name, for all words u, v, w. The finest congruence with that property is the free band (the free
semigroup with xx = x), so names are names of its elements; anything finer would tell some depths apart. Its word
problem is solved by the description of Green and Rees (On semigroups in which x^r = x, 1952): two words are equal iff
they agree in their longest prefix with one letter less, in the letter after it, and in the mirror image of both.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

LONGEST_REPEAT = 256
LONGEST_WORD = 100_000

Element = str | tuple["Element", ...]
"""A letter, or a repeated block of elements."""


def word_name(word: Sequence[str]) -> bytes:
    """The name of a word up to repetition: equal for `u v w` and `u v v w`, and only for words that follow from that.

    Takes time proportional to the length times the number of different letters. The empty word has the name b"".
    """
    letters = [letter for at, letter in enumerate(word) if at == 0 or letter != word[at - 1]]
    return _Band(letters).name()


class _Band:
    """One word and the names of those of its factors that are longest for their start, or for their end."""

    def __init__(self, word: list[str]) -> None:
        self._word = word
        self._distinct = len(set(word))
        # reach[k][i]: the end of the longest factor that starts at i and has k different letters.
        self._reach = [_reach(word, k) for k in range(self._distinct)]
        mirrored = [_reach(word[::-1], k) for k in range(self._distinct)]
        size = len(word)
        self._origin = [[size - end for end in reversed(ends)] for ends in mirrored]
        self._known: dict[tuple[bool, int, int], bytes] = {}

    def name(self) -> bytes:
        return self._factor(0, len(self._word), self._distinct)

    def _factor(self, start: int, end: int, distinct: int) -> bytes:
        """The name of word[start:end], which has this many different letters."""
        if distinct == 0:
            return b""
        after = self._reach[distinct - 1][start]
        before = self._origin[distinct - 1][end]
        digest = hashlib.blake2b(digest_size=16)
        for part in (
            self._anchored(False, start, distinct - 1),
            self._word[after].encode(),
            self._word[before - 1].encode(),
            self._anchored(True, end, distinct - 1),
        ):
            digest.update(len(part).to_bytes(2, "big") + part)
        return digest.digest()

    def _anchored(self, at_end: bool, anchor: int, distinct: int) -> bytes:
        """The name of the longest factor with this many different letters that starts (or ends) at `anchor`."""
        key = (at_end, anchor, distinct)
        if key not in self._known:
            if at_end:
                self._known[key] = self._factor(self._origin[distinct][anchor], anchor, distinct)
            else:
                self._known[key] = self._factor(anchor, self._reach[distinct][anchor], distinct)
        return self._known[key]


def _reach(word: Sequence[str], distinct: int) -> list[int]:
    """For each start (and the end of the word) where the longest factor with so many different letters ends."""
    ends, inside, end = [], dict.fromkeys(word, 0), 0
    held = 0
    for start in range(len(word) + 1):
        end = max(end, start)
        while end < len(word) and (inside[word[end]] or held < distinct):
            held += inside[word[end]] == 0
            inside[word[end]] += 1
            end += 1
        ends.append(end)
        if start < end:
            inside[word[start]] -= 1
            held -= inside[word[start]] == 0
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
    """The letters of some elements, each block once."""
    return [letter for e in elements for letter in ([e] if isinstance(e, str) else flatten(e))]


def spell(grammar: str) -> list[str]:
    """A rendered grammar as a word again, each block twice, so that folding finds it. Raises ValueError."""
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
            if len(open_blocks[-1]) > LONGEST_WORD:
                raise ValueError(f"more than {LONGEST_WORD:,} letters")
    if len(open_blocks) > 1:
        raise ValueError("`(` without `)+`")
    return open_blocks[0]
