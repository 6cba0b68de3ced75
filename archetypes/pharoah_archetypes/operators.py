"""The operator stream: what a capture or an imported trace says about one step, before any reduction."""

from __future__ import annotations

from dataclasses import dataclass

FORWARD, BACKWARD, RECOMPUTED, ASIDE, OPTIMIZER = "fwd", "bwd", "again", "aside", "opt"
"""Phases: `again` is forward work repeated inside the backward pass, `aside` ran without gradients."""


@dataclass(frozen=True, slots=True)
class Operator:
    """One dispatched operator.

    `reads` and `writes` name the memory of its tensor arguments (in order) and of what it made or changed (views make
    nothing); equal numbers mean shared memory at that moment, and an importer that cannot know leaves them empty.
    `notes` holds what the name does not tell:

    | note         | says                                                                                |
    |--------------|-------------------------------------------------------------------------------------|
    | `integer`    | the first result is not a floating-point tensor                                     |
    | `causal`     | an attention kernel was told that a position sees only those before it              |
    | `pairs`      | a mask over pairs of positions: index compared with index, or a square boolean mask |
    | `transposed` | a convolution that enlarges                                                         |
    | `rank1`      | a product of a column and a row, as in rotary angles: no contraction                |
    """

    name: str
    """Packet name without overload: `aten.mm`."""
    phase: str
    reads: tuple[int, ...] = ()
    writes: tuple[int, ...] = ()
    notes: frozenset[str] = frozenset()
