"""Archetypes: the structure of an AI job, in a form that stays the same while sizes, depths and machines change.

An operator stream of one training step becomes a `Skeleton`, a skeleton with its features, sizes and versions a
`Fingerprint`, and a fingerprint a ladder of canonical `inputs` for signatures. Standard library only.
"""

from pharoah_archetypes.canonical import GrammarError, Skeleton, canonicalize, parse
from pharoah_archetypes.catalogue import Archetype, catalogue, communication_patterns
from pharoah_archetypes.fingerprint import SERVES, Fingerprint, FingerprintError
from pharoah_archetypes.ladder import (
    HARDWARE_RUNGS,
    MAX_SIZE_POSITION,
    canonical_input,
    hardware_tokens,
    rung_tokens,
    size_class,
    size_position,
)
from pharoah_archetypes.operators import Operator
from pharoah_archetypes.rungs import RUNGS
from pharoah_archetypes.similarity import describe_sent, differences, nearest, pattern_of, similarity
from pharoah_archetypes.sketch import band_tokens

__all__ = [
    "HARDWARE_RUNGS",
    "MAX_SIZE_POSITION",
    "RUNGS",
    "SERVES",
    "Archetype",
    "Fingerprint",
    "FingerprintError",
    "GrammarError",
    "Operator",
    "Skeleton",
    "band_tokens",
    "canonical_input",
    "canonicalize",
    "catalogue",
    "communication_patterns",
    "describe_sent",
    "differences",
    "hardware_tokens",
    "nearest",
    "parse",
    "pattern_of",
    "rung_tokens",
    "similarity",
    "size_class",
    "size_position",
]
