"""The operator vocabulary, read from `vocabulary.toml` once and checked when it is read."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib import resources
from typing import NamedTuple

MASK_FILLS = frozenset({"aten.masked_fill", "aten.masked_fill_", "aten.where"})


class OperatorClass(StrEnum):
    """The operator classes that the reduction treats in a way of their own. All others are data alone."""

    ACTIVATION = "act"
    ATTENTION = "attn"
    BATCHED_PRODUCT = "bmm"
    PRODUCT = "gemm"
    CONVOLUTION = "conv"
    DEPTHWISE = "dwconv"
    """A convolution of each channel with a filter of its own."""
    EMBEDDING = "emb"
    EMBEDDING_BAG = "embbag"
    INDEX = "idx"
    SOFTMAX = "softmax"
    UPSAMPLING = "up"
    GRADIENT = "grad"
    """Any computation of the backward pass."""
    CUSTOM_KERNEL = "ext"
    """An operator outside of torch that no class covers."""
    CROSS_ATTENTION = "xattn"
    """Attention whose keys come from elsewhere than its queries."""
    ALL_REDUCE = "AR"
    BROADCAST = "BC"
    POINT_TO_POINT = "P2P"
    MASK_FILL = "fill"
    """A mask over all pairs of positions. Only inside attention that is written out; no skeleton holds it."""


class Trait(NamedTuple):
    """A property of an architecture that one operator shows; a skeleton holds it as `norm=rms`."""

    name: str
    value: str


@dataclass(frozen=True)
class Vocabulary:
    """The content of `vocabulary.toml`."""

    classes: dict[str, str]
    """Operator name (`aten.mm`) to class (`gemm`)."""
    known_classes: frozenset[str]
    """Every class that a skeleton may hold."""
    collectives: frozenset[str]
    compute: frozenset[str]
    losses: frozenset[str]
    activation: dict[str, int]
    """Which tensor argument of an operator is the activation, where it is not the first."""
    layers: dict[str, list[str]]
    """Operators that compute a whole layer, to the classes of what they compute."""
    traits: dict[str, Trait]
    """Operator name to the trait its presence shows."""
    transparent: frozenset[str]
    silent: frozenset[str]
    """Operators outside of torch that carry no structure."""
    kernels: dict[str, dict[str, str]]
    """Feature name to {value: substring of the operator name}."""


@cache
def vocabulary() -> Vocabulary:
    """The vocabulary of this release.

    Raises ValueError when an operator stands in two classes, when a group names an unknown class, or when a member of
    OperatorClass is missing: these are mistakes in the data file, and a silent choice would change every signature.
    """
    data = tomllib.loads(resources.files(__package__).joinpath("vocabulary.toml").read_text())
    classes = _invert(data["classes"])
    known = frozenset([*data["classes"], *data["written"]["classes"]])
    if missing := {name for name in OperatorClass if name is not OperatorClass.MASK_FILL} - known:
        raise ValueError(f"vocabulary.toml: classes that the code names are missing: {', '.join(sorted(missing))}")
    for name, group in data["groups"].items():
        if unknown := set(group) - known:
            raise ValueError(f"vocabulary.toml: groups.{name} names unknown classes {sorted(unknown)}")
    traits = {
        operator: Trait(name=trait, value=value)
        for trait, values in data["traits"].items()
        for operator, value in _invert(values).items()
    }
    return Vocabulary(
        classes,
        known,
        frozenset(data["groups"]["collectives"]),
        frozenset(data["groups"]["compute"]),
        frozenset(data["groups"]["losses"]),
        data["activation"],
        data["layers"],
        traits,
        frozenset(data["transparent"]["operators"]),
        frozenset(data["silent"]["operators"]),
        data["kernels"],
    )


def _invert(groups: dict[str, list[str]]) -> dict[str, str]:
    inverted: dict[str, str] = {}
    for name, operators in groups.items():
        for operator in operators:
            if operator in inverted:
                raise ValueError(f"vocabulary.toml: {operator} is in {inverted[operator]} and in {name}")
            inverted[operator] = name
    return inverted
