"""The ladder: canonical inputs of signatures, from most to least specific.

| rung          | says                                                        |
|---------------|-------------------------------------------------------------|
| `exact`       | archetype, features, size classes, full versions            |
| `minor`       | archetype, features, minor versions                         |
| `one-device`  | archetype without collectives, features, minor versions     |
| `collectives` | collectives alone, minor versions of what sends them        |
| `major`       | archetype, major versions                                   |

What is known of one device and what is known of a fabric reach a distributed job together, although the job itself has
not run (docs/adr/0029). Which software belongs to which rung is data (`inventory.toml`). Hardware has a ladder of its
own: server configuration, then GPU model.

Every input is a conjunction of all tokens of its rung: single tokens are few enough to be listed by anyone who may
ask the provider, conjunctions are not.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple

from pharoah_archetypes.canonical import parse
from pharoah_archetypes.fingerprint import Fingerprint
from pharoah_archetypes.inventory import inventory
from pharoah_archetypes.rungs import RUNGS, Rung

HARDWARE_RUNGS = {"server": ("gpu", "gpus", "cpu", "cpus", "memory", "driver"), "gpu": ("gpu",)}
"""Which facts of a machine name its configuration, and which its device; from most to least specific."""


def size_class(size_bytes: int) -> int:
    """The log2 size class: all sizes in [2^k, 2^(k+1)) share class k; 0 has class -1."""
    return size_bytes.bit_length() - 1


MAX_SIZE_POSITION = 255
"""It fits one byte of a row."""
_WEIGHTS = {"parameters": 4, "activations": 1}


def size_position(sizes: Mapping[str, int]) -> int:
    """Where in its size classes a job is: 0 at their lower ends, `MAX_SIZE_POSITION` right below their upper ends.

    Two jobs of one class may differ by a factor of two in what they need. `parameters` count four times: weights,
    gradients and two moments of an optimizer are held beside the activations.
    """
    held = {name: sizes[name] for name in _WEIGHTS if sizes.get(name, 0) > 0}
    whole = sum(_WEIGHTS[name] * size for name, size in held.items())
    least = sum(_WEIGHTS[name] * (1 << size_class(size)) for name, size in held.items())
    return min(MAX_SIZE_POSITION, (whole - least) * (MAX_SIZE_POSITION + 1) // least) if least else 0


_PARTS_OF_VERSIONS = {Rung.EXACT: None, Rung.MAJOR: 1}
"""How many parts of a version a rung names, where it is not two."""


def rung_tokens(fingerprint: Fingerprint, rung: str) -> tuple[str, ...]:
    """Tokens of one rung, sorted; none where the job lacks the rung.

    Raises ValueError for a rung that does not exist, and GrammarError for a fingerprint without a valid grammar where
    the rung asks for parts of it.
    """
    if rung not in RUNGS:
        raise ValueError(f"rung {rung!r}: the ladder has {', '.join(RUNGS)}")
    structure = _structure(fingerprint, Rung(rung))
    if not structure:
        return ()
    tokens = [structure]
    if rung not in (Rung.MAJOR, Rung.COLLECTIVES):
        tokens += [f"{name}={value}" for name, value in fingerprint.features.items()]
    if rung == Rung.EXACT:
        tokens += [f"{name}=2^{size_class(size)}" for name, size in fingerprint.sizes.items()]
    parts = _PARTS_OF_VERSIONS.get(Rung(rung), 2)
    for software in inventory():
        if rung in software.rungs and (version := fingerprint.versions.get(software.name)):
            tokens.append(f"{software.name}={_release(version, parts)}")
    return tuple(sorted({_normal(token) for token in tokens}))


def _structure(fingerprint: Fingerprint, rung: Rung) -> str:
    """The token of what a rung names of the structure; empty where the job has nothing of it."""
    if rung is Rung.ONE_DEVICE:
        return f"archetype={parts_of(fingerprint.grammar).one_device}"
    if rung is Rung.COLLECTIVES:
        sent = parts_of(fingerprint.grammar).collectives
        return f"collectives={sent}" if sent else ""
    return f"archetype={fingerprint.archetype}"


class StructureParts(NamedTuple):
    """The names of the parts of a skeleton, 32 hex digits each."""

    one_device: str
    """The archetype without its collectives. It is the archetype itself for a job that sends nothing."""
    collectives: str
    """The collectives alone; empty for a job that sends nothing."""


@lru_cache(maxsize=1024)  # a grammar is read for every rung, and the trials of a campaign have few different ones
def parts_of(grammar: str) -> StructureParts:
    """Raises GrammarError for a text that is not a grammar."""
    skeleton = parse(grammar)
    sent = skeleton.collectives
    return StructureParts(
        one_device=skeleton.alone.archetype, collectives=sent.archetype if any(sent.phases.values()) else ""
    )


def hardware_tokens(fingerprint: Fingerprint, rung: str) -> tuple[str, ...]:
    """Tokens of one hardware rung, sorted; empty when the machine has none of its facts. Raises KeyError."""
    facts = fingerprint.hardware
    return tuple(sorted(_normal(f"{name}={facts[name]}") for name in HARDWARE_RUNGS[rung] if name in facts))


def canonical_input(kind: str, rung: str, tokens: Iterable[str]) -> bytes:
    """The bytes a signature is made from: length-prefixed parts, tokens normalised, sorted, without repeats.

    Raises ValueError when a part is longer than 65,535 bytes.
    """
    return length_prefixed(
        b"pharoah/in/v1",
        kind.encode(),
        rung.encode(),
        *(t.encode() for t in sorted({_normal(t) for t in tokens})),
    )


def length_prefixed(*parts: bytes) -> bytes:
    """Concatenate parts, each after its length in 2 bytes (big-endian). Injective over lists of parts.

    Raises ValueError when a part is longer than 65,535 bytes.
    """
    for part in parts:
        if len(part) > 0xFFFF:
            raise ValueError(f"a part of {len(part)} bytes does not fit a 2-byte length")
    return b"".join(len(part).to_bytes(2, "big") + part for part in parts)


def parts(data: bytes) -> list[bytes]:
    """The parts that `length_prefixed` joined. Raises ValueError when a length does not fit."""
    found, at = [], 0
    while at < len(data):
        end = at + 2 + int.from_bytes(data[at : at + 2], "big")
        if end > len(data) or at + 2 > len(data):
            raise ValueError("truncated")
        found.append(data[at + 2 : end])
        at = end
    return found


def _release(version: str, parts: int | None) -> str:
    public = version.partition("+")[0]
    return public if parts is None else ".".join(public.split(".")[:parts])


def _normal(token: str) -> str:
    return unicodedata.normalize("NFC", token).lower()
