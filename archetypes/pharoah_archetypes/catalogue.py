"""The catalogue: archetypes that have a name, as data files. Adding one needs no code (docs/archetypes.md)."""

from __future__ import annotations

import tomllib
from collections import Counter
from dataclasses import dataclass
from functools import cache
from importlib import resources


@dataclass(frozen=True)
class Archetype:
    """A named skeleton: what it is, why it behaves as it does, and where that is described."""

    id: str
    title: str
    mechanism: str
    grammar: str
    references: tuple[str, ...]


@cache
def catalogue() -> dict[str, Archetype]:
    """All archetypes by id. Raises ValueError naming the file when one is incomplete or its id is taken."""
    known: dict[str, Archetype] = {}
    for file in sorted(resources.files(__package__).joinpath("catalogue").iterdir(), key=lambda f: f.name):
        data = tomllib.loads(file.read_text())
        try:
            entry = Archetype(
                data["id"],
                data["title"],
                data["mechanism"].strip(),
                data["grammar"].strip(),
                tuple(data["references"]),
            )
        except KeyError as missing:
            raise ValueError(f"{file.name}: {missing.args[0]} is missing") from None
        if entry.id in known or entry.id != file.name.removesuffix(".toml"):
            raise ValueError(f"{file.name}: the id {entry.id!r} is taken or differs from the file's name")
        known[entry.id] = entry
    return known


def nearest(grammar: str) -> tuple[Archetype, float]:
    """The closest named archetype and its similarity (0-1, cosine of class 3-grams; 1 only for the same counts)."""
    scored = [(similarity(grammar, entry.grammar), entry.id) for entry in catalogue().values()]
    score, best = max(scored)
    return catalogue()[best], score


def similarity(left: str, right: str) -> float:
    """Cosine of the 3-gram counts of two grammars, repeats and phases included as symbols."""
    a, b = _trigrams(left), _trigrams(right)
    dot = sum(count * b[gram] for gram, count in a.items())
    norm = (sum(c * c for c in a.values()) * sum(c * c for c in b.values())) ** 0.5
    return dot / norm if norm else 0.0


def _trigrams(grammar: str) -> Counter[tuple[str, ...]]:
    words = grammar.replace("(", " ( ").replace(")+", " )+ ").split()
    padded = ["^", *words, "$"]
    return Counter(zip(padded, padded[1:], padded[2:], strict=False))
