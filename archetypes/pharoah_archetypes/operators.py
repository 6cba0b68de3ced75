"""The operator stream: one step as a capture or an imported trace recorded it, before any reduction."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Phase(StrEnum):
    """The part of a training step that an operator belongs to."""

    FORWARD = "fwd"
    BACKWARD = "bwd"
    RECOMPUTED = "recompute"
    """Forward work that activation checkpointing repeats inside the backward pass."""
    NO_GRAD = "no_grad"
    """It ran without gradients."""
    OPTIMIZER = "opt"


FORWARD, BACKWARD, RECOMPUTED, NO_GRAD, OPTIMIZER = Phase


@dataclass(frozen=True, slots=True)
class Operator:
    """One dispatched operator.

    `reads` and `writes` name the memory of its tensor arguments (in order) and of what it made or changed (views make
    nothing); equal numbers mean shared memory at that moment, and an importer that cannot know leaves them empty.
    `notes` holds what the name does not show:

    | note         | meaning                                                                             |
    |--------------|-------------------------------------------------------------------------------------|
    | `integer`    | the first result is not a floating-point tensor                                     |
    | `causal`     | a flag or a mask that keeps positions from attending to later ones                  |
    | `pairs`      | a boolean mask over pairs of positions is applied                                   |
    | `transposed` | a convolution that enlarges                                                         |
    | `depthwise`  | a convolution with a filter for each channel                                        |
    | `rank1`      | a product of a column and a row, as in rotary angles: no contraction                |
    | `shared`     | a batch of products with one matrix                                                 |
    """

    name: str
    """Packet name without overload: `aten.mm`."""
    phase: Phase
    reads: tuple[int, ...] = ()
    writes: tuple[int, ...] = ()
    notes: frozenset[str] = frozenset()
