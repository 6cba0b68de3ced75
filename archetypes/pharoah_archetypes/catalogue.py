"""The catalogue: archetypes that have a name, as data files. Adding one needs no code (docs/archetypes.md).

What jobs compute and what they send are named apart: the same model on one device and on a thousand has one entry, and
so has the same way of sending with any model.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources

from pharoah_archetypes.canonical import GrammarError, Skeleton, parse


@dataclass(frozen=True)
class Archetype:
    """A named skeleton: what it is, why it behaves as it does, and where that is described."""

    id: str
    title: str
    mechanism: str
    skeleton: Skeleton
    variants: tuple[str, ...]
    """Models that the tests train in many forms: all of them are this."""
    seen_in: tuple[str, ...]
    """Public models and scripts that are this, as `python -m evaluation archetypes` and `coverage` name them."""
    references: tuple[str, ...]
    """Where it is described."""

    @property
    def grammar(self) -> str:
        return self.skeleton.text


@cache
def catalogue() -> dict[str, Archetype]:
    """What jobs compute, by id. Raises ValueError naming the file when one is incomplete or its id is taken."""
    return _read("catalogue")


@cache
def communication_patterns() -> dict[str, Archetype]:
    """What jobs send, by id: skeletons of collectives alone. Raises ValueError as `catalogue` does."""
    known = _read("communication")
    for entry in known.values():
        if entry.skeleton != entry.skeleton.collectives:
            raise ValueError(f"{entry.id}.toml: grammar: a communication pattern has collectives only")
    return known


def _read(folder: str) -> dict[str, Archetype]:
    known: dict[str, Archetype] = {}
    for file in sorted(resources.files(__package__).joinpath(folder).iterdir(), key=lambda f: f.name):
        data = tomllib.loads(file.read_text())
        try:
            entry = Archetype(
                data["id"],
                data["title"],
                data["mechanism"].strip(),
                parse(data["grammar"]),
                tuple(data["variants"]),
                tuple(data.get("seen_in", ())),
                tuple(data["references"]),
            )
        except KeyError as missing:
            raise ValueError(f"{file.name}: {missing.args[0]} is missing") from None
        except GrammarError as error:
            raise ValueError(f"{file.name}: grammar: {error}") from None
        if entry.id in known or entry.id != file.name.removesuffix(".toml"):
            raise ValueError(f"{file.name}: the id {entry.id!r} is taken or differs from the file's name")
        known[entry.id] = entry
    return known
