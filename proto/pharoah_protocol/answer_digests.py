"""Digests of what micro-benchmarks compute: 64 hexadecimal digits, of which the first ones name the software.

Another version of a library may add in another order and get other last bits. So only digests with equal first parts
are compared.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

SOFTWARE_DIGITS = 16
"""64 bits for some dozens of versions: two of them collide once in 10**16 fleets."""
_DIGITS = 64
DIGEST = re.compile(f"[0-9a-f]{{{_DIGITS}}}|")
"""A digest, or none."""


def answer_digest(software: str, numbers: bytes) -> str:
    """The digest of numbers that this software has computed (SHA-256, both parts shortened)."""
    of_software, of_numbers = (hashlib.sha256(part).hexdigest() for part in (software.encode(), numbers))
    return of_software[:SOFTWARE_DIGITS] + of_numbers[: _DIGITS - SOFTWARE_DIGITS]


def software_of(digest: str) -> str:
    """The part that names the software."""
    return digest[:SOFTWARE_DIGITS]


def join_digests(digests: Sequence[str]) -> str:
    """One digest for the devices of a node, which have the same software: theirs if all are equal, and else one that no
    node with equal ones has."""
    if len(set(digests)) == 1:
        return digests[0]
    of_numbers = hashlib.sha256("".join(digests).encode()).hexdigest()
    return software_of(digests[0]) + of_numbers[: _DIGITS - SOFTWARE_DIGITS]
