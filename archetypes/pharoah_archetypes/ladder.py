"""The ladder: canonical inputs of signatures, from most to least specific.

| rung    | says                                                        |
|---------|-------------------------------------------------------------|
| `exact` | archetype, features, size classes, full versions            |
| `minor` | archetype, features, minor versions                         |
| `major` | archetype, major versions                                   |

Which software belongs to which rung is data (`inventory.toml`). Hardware has a ladder of its own: server configuration,
then GPU model.

Every input is a conjunction of all tokens of its rung: single tokens are few enough to be listed by anyone who may
ask the provider, conjunctions are not.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

from pharoah_archetypes.fingerprint import Fingerprint
from pharoah_archetypes.inventory import inventory
from pharoah_archetypes.rungs import RUNGS, Rung

HARDWARE_RUNGS = {"server": ("gpu", "gpus", "cpu", "cpus", "memory", "driver"), "gpu": ("gpu",)}
"""Which facts of a machine name its configuration, and which its device; from most to least specific."""


def size_class(size_bytes: int) -> int:
    """The log2 size class: all sizes in [2^k, 2^(k+1)) share class k; 0 has class -1."""
    return size_bytes.bit_length() - 1


def rung_tokens(fingerprint: Fingerprint, rung: str) -> tuple[str, ...]:
    """Tokens of one rung, sorted. Raises ValueError for a rung that does not exist."""
    if rung not in RUNGS:
        raise ValueError(f"rung {rung!r}: the ladder has {', '.join(RUNGS)}")
    tokens = [f"archetype={fingerprint.archetype}"]
    if rung != Rung.MAJOR:
        tokens += [f"{name}={value}" for name, value in fingerprint.features.items()]
    if rung == Rung.EXACT:
        tokens += [f"{name}=2^{size_class(size)}" for name, size in fingerprint.sizes.items()]
    parts = {Rung.EXACT: None, Rung.MINOR: 2, Rung.MAJOR: 1}[Rung(rung)]
    for software in inventory():
        if rung in software.rungs and (version := fingerprint.versions.get(software.name)):
            tokens.append(f"{software.name}={_release(version, parts)}")
    return tuple(sorted({_normal(token) for token in tokens}))


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
