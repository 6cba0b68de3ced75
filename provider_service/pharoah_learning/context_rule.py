"""Facts and contexts are two things: a node sends facts, and the rule of a release says which of them make its context.

A rule ignores a fact where evidence shows that it does not matter (`pharoah_learning.context_evidence`). It ignores
those of its values that were compared, and no others: a node with a kernel that nobody has tried is in a context of its
own until a campaign has run there. Without evidence all facts count, and a context is the set of all facts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

KNOWN_CAUSES: Mapping[str, str] = {
    "device": "the device model decides which kernels run",
    "gpu": "the model of the GPU decides which kernels run and what fits",
    "isa": "the instruction set decides which kernels run",
    "memory_limit": "the memory decides what fits",
}
"""Facts that are never ignored, with the reason: which jobs they harm depends on jobs that no campaign has run."""

ABSENT = ""
"""The value of a fact that a node does not have."""

_GIBIBYTE = 1 << 30


def identity(facts: Iterable[str]) -> str:
    """Name of a context or device model: the same facts in any order give the same name."""
    return hashlib.blake2b("\n".join(sorted(facts)).encode(), digest_size=8).hexdigest()


def values_of(facts: Iterable[str]) -> dict[str, str]:
    """Name of a fact to its value, of facts that are written as `name=value`."""
    return dict(sorted(fact.partition("=")[::2] for fact in facts))


@dataclass(frozen=True, kw_only=True)
class IgnoredFact:
    """A fact that does not matter, as far as its values were compared."""

    name: str
    values: tuple[str, ...]
    """The values that make no difference, in alphabetical order; `ABSENT` is one of them where it was compared."""
    reason: str
    """The evidence, as a sentence without a full stop."""

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> IgnoredFact:
        """Read what `asdict` gave, also as it comes back from JSON. Raises KeyError or TypeError."""
        return cls(**{**data, "values": tuple(data["values"])})


@dataclass(frozen=True)
class ContextRule:
    """Which facts make a context. The rule without ignored facts makes a context of every set of facts."""

    ignored: tuple[IgnoredFact, ...] = ()

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> ContextRule:
        """Read what `asdict` gave, also as it comes back from JSON. Raises KeyError or TypeError."""
        return cls(tuple(IgnoredFact.from_dict(fact) for fact in data["ignored"]))

    def relevant(self, facts: Sequence[str]) -> tuple[str, ...]:
        """The facts of a node that count, in alphabetical order. A fact that is absent where absence was not compared
        counts as `name=`."""
        ignored = {fact.name: fact.values for fact in self.ignored}
        counting = [fact for fact in facts if not _is_ignored(fact, ignored)]
        missing = ignored.keys() - values_of(facts).keys()
        absent = [f"{name}={ABSENT}" for name in missing if ABSENT not in ignored[name]]
        return tuple(sorted([*counting, *absent]))

    def context_of(self, facts: Sequence[str]) -> str:
        """The name of the context of a node with these facts."""
        return identity(self.relevant(facts))

    def describe(self, facts: Sequence[str]) -> str:
        """The context of a node in plain words, for everybody."""
        described = ", ".join(map(_in_words, self.relevant(facts)))
        names = [fact.name.replace("_", " ") for fact in self.ignored]
        if not names:
            return described
        listed = " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
        return f"{described}; {listed} {'does' if len(names) == 1 else 'do'} not matter"


ALL_FACTS = ContextRule()
"""The rule that ignores nothing: every set of facts is a context."""


@dataclass(frozen=True, kw_only=True)
class KnownContext:
    """A context of which a release has trials."""

    context_id: str
    facts: tuple[str, ...]
    """The facts that make it."""
    description: str

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> KnownContext:
        """Read what `asdict` gave, also as it comes back from JSON. Raises KeyError or TypeError."""
        return cls(**{**data, "facts": tuple(data["facts"])})


class Nearest(NamedTuple):
    """The known context that is nearest to a node."""

    context: KnownContext
    differs: tuple[str, ...]
    """Names of the relevant facts in which the node differs from it; empty where the node is in it."""


def nearest(relevant: Sequence[str], known: Sequence[KnownContext]) -> Nearest | None:
    """The known context with the fewest facts that differ from these relevant ones; a known cause counts as more than
    all others together. None where no context is known.

    It serves listings and the order of works. Nothing that was learned there holds for the node.
    """
    own = values_of(relevant)

    def differs(context: KnownContext) -> tuple[str, ...]:
        theirs = values_of(context.facts)
        return tuple(name for name in sorted(own.keys() | theirs.keys()) if own.get(name) != theirs.get(name))

    def distance(found: Nearest) -> tuple[int, int, str]:
        causes = sum(name in KNOWN_CAUSES for name in found.differs)
        return causes, len(found.differs), found.context.context_id

    return min((Nearest(context, differs(context)) for context in known), key=distance, default=None)


def _is_ignored(fact: str, ignored: Mapping[str, Sequence[str]]) -> bool:
    name, _, value = fact.partition("=")
    return value in ignored.get(name, ())


def _in_words(fact: str) -> str:
    name, _, value = fact.partition("=")
    if not value:
        return f"no {name.replace('_', ' ')}"
    match name:
        case "device":
            return f"device model {value}"
        case "isa":
            return {"avx512": "AVX-512", "avx2": "AVX2"}.get(value, value)
        case "threads" | "cpus":
            noun = "thread" if name == "threads" else "core"
            return f"{value} {noun}{'' if value == '1' else 's'}"
        case "memory_limit" if value.isdecimal():
            return f"at most {int(value) / _GIBIBYTE:.3g} GiB of memory" if int(value) else "no limit of memory"
    return f"{name.replace('_', ' ')} {value}"
