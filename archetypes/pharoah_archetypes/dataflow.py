"""From operators to operator classes: a dataflow analysis of one step, for what the names alone do not show.

Every forward value has a set of roots: the embeddings and raw inputs it comes from. Attention whose queries have a
root that its keys lack is cross attention. A value also has a source: the product, norm or input that it was computed
from element by element. An activation that multiplies a value of another source is a gate, and one that multiplies its
own source is a part of an activation that is written out (GELU, SiLU). A value is identified by the memory it lies in;
a write makes a new value.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from pharoah_archetypes.operators import BACKWARD, FORWARD, OPTIMIZER, RECOMPUTED, Operator
from pharoah_archetypes.vocabulary import MASK_FILLS, OperatorClass, Vocabulary, vocabulary

_STANDARD = ("aten", "c10d", "_c10d_functional", "prim", "prims", "profiler", "inductor", "debugprims")
_FRESH = (
    "aten.empty",
    "aten.zeros",
    "aten.ones",
    "aten.full",
    "aten.rand",
    "aten.new_",
    "aten.bernoulli",
    "aten.arange",
    "aten.lift_fresh",
)

_ELEMENTWISE = {
    f"aten.{name}{inplace}" for name in ("add", "sub", "rsub", "mul", "div", "neg", "pow") for inplace in ("", "_")
}
"""Operators that activations are written out with, beside those that are activations themselves."""
_DIVISIONS = {"aten.split", "aten.split_with_sizes", "aten.slice"}
"""Views of parts: a product for both sides of a gate is divided so."""
_MAX_WRITTEN_OUT = 8
"""Operators from the first product of written-out attention to the second, at most."""
_INSIDE_ATTENTION = {OperatorClass.MASK_FILL, OperatorClass.EMBEDDING, OperatorClass.INDEX}
"""Classes between the two products: masks, and relative position biases."""


class Classified(NamedTuple):
    """One operator of the forward pass that carries structure."""

    name: str
    """Its operator class."""
    crosses: bool = False
    """Whether its second operand lacks a root of its first."""


@dataclass
class Step:
    """One step, reduced to operator classes."""

    forward: list[str] = field(default_factory=list)
    backward: list[str] = field(default_factory=list)
    update: list[str] = field(default_factory=list)
    """Collectives between the last backward pass and the end of the step: gradients by hand, norms, sharded states."""
    traits: dict[str, None] = field(default_factory=dict)
    features: dict[str, str] = field(default_factory=dict)
    unknown: dict[str, None] = field(default_factory=dict)


def follow(operators: Iterable[Operator]) -> Step:
    """Read the operators of one step in the order they ran. Of those without gradients only collectives count."""
    step, values, known = Step(), _Values(), vocabulary()
    classified: list[Classified] = []
    before, differentiated = FORWARD, False
    for operator in operators:
        name = known.classes.get(operator.name, "")
        if name in known.collectives and operator.phase != RECOMPUTED:
            if operator.phase == BACKWARD:
                step.backward.append(name)
            elif operator.phase == OPTIMIZER or differentiated:
                step.update.append(name)
            else:
                classified.append(Classified(name))
            continue
        if operator.phase == FORWARD:
            if before != FORWARD:  # another micro-batch: memory of the last one may have been reused unseen
                values = _Values()
            seen = _forward(operator, values, step, known)
            if seen and differentiated:  # collectives since the last backward pass belong to this micro-batch
                classified += [Classified(sent) for sent in step.update]
                step.update, differentiated = [], False
            classified += seen
        elif operator.phase == BACKWARD:
            differentiated = True
            step.backward += [OperatorClass.GRADIENT] if name or operator.name.endswith("_backward") else []
        elif operator.phase == RECOMPUTED:
            if name:  # FSDP 1 works with gradients in the backward pass, and computes nothing again
                step.features["checkpointing"] = "on"
            continue
        else:
            values.forget(operator)
            continue
        before = operator.phase
    step.forward = _join_attention(classified, step)
    return step


def _forward(operator: Operator, values: _Values, step: Step, known: Vocabulary) -> list[Classified]:
    name, notes = operator.name, operator.notes
    if trait := known.traits.get(name):
        step.traits["=".join(trait)] = None
    if "causal" in notes:
        step.traits["causal"] = None
    operator_class = _class_of(operator, known)
    if name in MASK_FILLS and "pairs" in notes:
        operator_class = OperatorClass.MASK_FILL
    if operator_class in (OperatorClass.EMBEDDING, OperatorClass.EMBEDDING_BAG):
        values.plant(operator)
    elif name in known.transparent or name in _DIVISIONS:
        values.copy(operator)
    else:
        if name in ("aten.mul", "aten.mul_") and values.is_gated(operator):
            step.traits["gated"] = None
        if operator_class in known.compute:
            values.root(operator, known.activation.get(name, 0))
        values.derive(operator, activates=operator_class == OperatorClass.ACTIVATION)
    if operator_class == OperatorClass.CUSTOM_KERNEL:
        step.unknown[name] = None
    if operator_class == OperatorClass.ATTENTION:
        step.features.update(_kernel(name, known))
    at = known.activation.get(name, 0)
    compares = operator_class in (OperatorClass.ATTENTION, OperatorClass.BATCHED_PRODUCT)
    crosses = compares and values.crosses(operator.reads[at : at + 2])
    if layer := known.layers.get(name):
        return [Classified(part) for part in layer]
    return [Classified(operator_class, crosses)] if operator_class else []


def _class_of(operator: Operator, known: Vocabulary) -> str:
    """The class of an operator of the forward pass; empty for an operator without structure."""
    operator_class = known.classes.get(operator.name, "")
    if "integer" in operator.notes or "rank1" in operator.notes:
        return ""
    if operator_class == OperatorClass.BATCHED_PRODUCT and "shared" in operator.notes:
        return OperatorClass.PRODUCT
    if operator_class == OperatorClass.CONVOLUTION and "transposed" in operator.notes:
        return OperatorClass.UPSAMPLING
    if operator_class == OperatorClass.CONVOLUTION and "depthwise" in operator.notes:
        return OperatorClass.DEPTHWISE
    if not operator_class and operator.name.partition(".")[0] not in _STANDARD and operator.name not in known.silent:
        return OperatorClass.CUSTOM_KERNEL
    return operator_class


def _join_attention(classified: list[Classified], step: Step) -> list[str]:
    """Attention written out by a math kernel is attention; which kernel it was is a feature."""
    joined: list[str] = []
    at = 0
    while at < len(classified):
        name, crosses = classified[at]
        between, end = _write_out(classified, at)
        if end:
            step.features["attention"] = "math"
            joined += [inner for inner in between if inner != OperatorClass.MASK_FILL]
            name, at = OperatorClass.ATTENTION, end
        at += 1
        if name != OperatorClass.MASK_FILL:
            joined.append(OperatorClass.CROSS_ATTENTION if name == OperatorClass.ATTENTION and crosses else name)
    return joined


def _write_out(classified: list[Classified], at: int) -> tuple[list[str], int]:
    """`bmm softmax bmm` from `at` on: the masks and biases in between, and where it ends (0 if there is none)."""
    names = [entry.name for entry in classified[at : at + _MAX_WRITTEN_OUT]]
    if names[0] != OperatorClass.BATCHED_PRODUCT or OperatorClass.SOFTMAX not in names:
        return [], 0
    softmax = names.index(OperatorClass.SOFTMAX)
    between = names[1:softmax]
    if names[softmax + 1 : softmax + 2] != [OperatorClass.BATCHED_PRODUCT] or not set(between) <= _INSIDE_ATTENTION:
        return [], 0
    return between, at + softmax + 1


def _kernel(name: str, known: Vocabulary) -> dict[str, str]:
    return {
        feature: value for feature, values in known.kernels.items() for value, part in values.items() if part in name
    }


class _Values:
    """Where the values of one forward pass come from."""

    def __init__(self) -> None:
        self._roots: dict[int, int] = {}
        self._same: dict[int, int] = {}
        self._raw: dict[int, int] = {}
        self._sources: dict[int, int] = {}
        self._activated: set[int] = set()
        self._divided: set[int] = set()
        """Memory of which parts are used apart."""
        self._planted = 0
        self._written = 0
        """How many operators have written so far: the number of a new source."""

    def plant(self, operator: Operator) -> None:
        """The results are a new root: an embedding."""
        self._write(operator, self._new_root())

    def root(self, operator: Operator, activation: int) -> None:
        """The activation an operator computes with is a root of its own when nothing known led to it."""
        if any(self._roots.get(read) for read in operator.reads) or activation >= len(operator.reads):
            return
        read = operator.reads[activation]
        value = self._same.get(read, read)
        if value not in self._raw:
            self._raw[value] = self._new_root()
        self._roots[read] = self._raw[value]

    def derive(self, operator: Operator, activates: bool) -> None:
        """The results come from everything that was read."""
        roots = source = 0
        if not operator.name.startswith(_FRESH) and not operator.name.endswith("_like"):
            for read in operator.reads:
                roots |= self._roots.get(read, 0)
        if activates or operator.name in _ELEMENTWISE:
            source = self._common_source(operator)
            activates = activates or (source != 0 and not self._activated.isdisjoint(operator.reads))
        self._write(operator, roots, activates, source)

    def forget(self, operator: Operator) -> None:
        """The origin of the results is not known."""
        self._write(operator, 0)

    def copy(self, operator: Operator) -> None:
        """The results are the first argument under another address."""
        if not operator.reads:
            return
        source = operator.reads[0]
        activated, value = source in self._activated, self._same.get(source, source)
        self._write(operator, self._roots.get(source, 0), activated, self._source_of(source))
        if operator.name in _DIVISIONS:
            self._divided.update((source, *operator.writes))
        for written in operator.writes:
            if written != source:
                self._same[written] = value

    def is_gated(self, operator: Operator) -> bool:
        """Whether one operand is the result of an activation, and the other a value with a root that has another source
        or is another part of the same one."""
        known = {read for read in operator.reads if self._roots.get(read)}
        apart = not self._common_source(operator) or not self._divided.isdisjoint(known)
        return len(known) == 2 and len(self._activated & known) == 1 and apart

    def crosses(self, operands: tuple[int, ...]) -> bool:
        """Whether the first operand has a root that the second lacks."""
        roots = [self._roots.get(operand, 0) for operand in operands]
        return len(roots) == 2 and all(roots) and bool(roots[0] & ~roots[1])

    def _source_of(self, read: int) -> int:
        """The source of a value; one that nothing known led to is its own."""
        return self._sources.get(read, -read)

    def _common_source(self, operator: Operator) -> int:
        """The source that all operands with a root have; 0 when there are several."""
        sources = {self._source_of(read) for read in operator.reads if self._roots.get(read)}
        return sources.pop() if len(sources) == 1 else 0

    def _new_root(self) -> int:
        self._planted += 1
        return 1 << self._planted

    def _write(self, operator: Operator, roots: int, activated: bool = False, source: int = 0) -> None:
        """`source` is that of the results; 0 when they are a new one."""
        self._written += 1
        for written in operator.writes:
            self._sources[written] = source or self._written
            self._divided.discard(written)
            if roots:
                self._roots[written] = roots
            else:
                self._roots.pop(written, None)
            self._same.pop(written, None)
            self._raw.pop(written, None)
            (self._activated.add if activated else self._activated.discard)(written)
