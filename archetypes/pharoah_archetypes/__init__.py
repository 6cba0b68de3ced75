"""Archetypes: what an AI job is made of, in words that stay the same while sizes, depths and machines change.

An operator stream of one training step becomes a `Skeleton`, a skeleton with its features, sizes and versions a
`Fingerprint`, and a fingerprint a ladder of canonical `inputs` for signatures. Standard library only.
"""

from pharoah_archetypes.canonical import Operator, Skeleton, canonicalize
from pharoah_archetypes.catalogue import Archetype, catalogue, nearest
from pharoah_archetypes.fingerprint import Fingerprint, FingerprintError
from pharoah_archetypes.ladder import RUNGS, canonical_input, rung_tokens, size_class

__all__ = [
    "RUNGS",
    "Archetype",
    "Fingerprint",
    "FingerprintError",
    "Operator",
    "Skeleton",
    "canonical_input",
    "canonicalize",
    "catalogue",
    "nearest",
    "rung_tokens",
    "size_class",
]
