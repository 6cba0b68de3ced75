"""From operators to letters: follows values through one step far enough to tell what the names alone do not.

Every forward value has a set of roots: the embeddings and raw inputs it comes from. Attention whose queries have a
root that its keys lack is cross attention. Values are told apart by the memory they lie in; a write makes a new value.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from pharoah_archetypes.operators import BACKWARD, FORWARD, OPTIMIZER, RECOMPUTED, Operator
from pharoah_archetypes.vocabulary import COMPARISONS, MASK_FILLS, TRIANGLES, Vocabulary, vocabulary

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

_LONGEST_WRITTEN_OUT = 8

Letter = tuple[str, bool]
"""A class, and whether its second operand lacks a root of its first."""


@dataclass
class Step:
    """One step, reduced to letters."""

    forward: list[str] = field(default_factory=list)
    backward: list[str] = field(default_factory=list)
    update: list[str] = field(default_factory=list)
    """Collectives between the last backward pass and the end of the step: gradients by hand, norms, sharded states."""
    traits: dict[str, None] = field(default_factory=dict)
    features: dict[str, str] = field(default_factory=dict)
    unknown: dict[str, None] = field(default_factory=dict)


def follow(operators: Iterable[Operator]) -> Step:
    """Read the operators of one step in the order they ran. What ran aside leaves no letters, collectives excepted."""
    step, values, words = Step(), _Values(), vocabulary()
    letters: list[Letter] = []
    before, differentiated = FORWARD, False
    for operator in operators:
        letter = words.classes.get(operator.name, "")
        if letter in words.collectives and operator.phase != RECOMPUTED:
            if operator.phase == BACKWARD:
                step.backward.append(letter)
            elif operator.phase == OPTIMIZER or differentiated:
                step.update.append(letter)
            else:
                letters.append((letter, False))
            continue
        if operator.phase == FORWARD:
            if before != FORWARD:  # another micro-batch: memory of the last one may have changed hands unseen
                values = _Values()
            seen = _forward(operator, values, step, words)
            if seen and differentiated:  # what was sent since the last backward pass began this micro-batch
                letters += [(sent, False) for sent in step.update]
                step.update, differentiated = [], False
            letters += seen
        elif operator.phase == BACKWARD:
            differentiated = True
            step.backward += ["grad"] if letter or operator.name.endswith("_backward") else []
        elif operator.phase == RECOMPUTED:
            step.features["checkpointing"] = "on"
            continue
        else:
            values.forget(operator)
            continue
        before = operator.phase
    step.forward = _join_attention(letters, step)
    return step


def _forward(operator: Operator, values: _Values, step: Step, words: Vocabulary) -> list[Letter]:
    name, notes = operator.name, operator.notes
    if trait := words.traits.get(name):
        step.traits["=".join(trait)] = None
    if "causal" in notes or name in TRIANGLES or (name in COMPARISONS and "pairs" in notes):
        step.traits["causal"] = None
    letter = _letter(operator, words)
    if name in MASK_FILLS and "pairs" in notes:
        letter = "fill"
    if letter in ("emb", "embbag"):
        values.plant(operator)
    elif name in words.transparent:
        values.copy(operator)
    else:
        if name in ("aten.mul", "aten.mul_") and values.is_gated(operator):
            step.traits["gated"] = None
        if letter in words.compute:
            values.root(operator, words.activation.get(name, 0))
        values.derive(operator, activated=letter == "act")
    if letter == "ext":
        step.unknown[name] = None
    if letter == "attn":
        step.features.update(_kernel(name, words))
    at = words.activation.get(name, 0)
    crossing = letter in ("attn", "bmm") and values.crosses(operator.reads[at : at + 2])
    return [(letter, crossing)] if letter else []


def _letter(operator: Operator, words: Vocabulary) -> str:
    letter = words.classes.get(operator.name, "")
    if "integer" in operator.notes or "rank1" in operator.notes:
        return ""
    if letter == "conv" and "transposed" in operator.notes:
        return "up"
    if not letter and operator.name.partition(".")[0] not in _STANDARD and operator.name not in words.silent:
        return "ext"
    return letter


def _join_attention(letters: list[Letter], step: Step) -> list[str]:
    """Attention written out by a math kernel is attention; which kernel it was is a feature."""
    joined: list[str] = []
    at = 0
    while at < len(letters):
        name, crossing = letters[at]
        between, end = _written_out(letters, at)
        if end:
            step.features["attention"] = "math"
            if "fill" in between:
                step.traits["causal"] = None
            joined += [letter for letter in between if letter != "fill"]
            name, at = "attn", end
        at += 1
        if name != "fill":
            joined.append("xattn" if name == "attn" and crossing else name)
    return joined


def _written_out(letters: list[Letter], at: int) -> tuple[list[str], int]:
    """`bmm softmax bmm` from `at` on: what makes masks and biases in between, and where it ends (0 if it is none)."""
    names = [name for name, _ in letters[at : at + _LONGEST_WRITTEN_OUT]]
    if names[0] != "bmm" or "softmax" not in names:
        return [], 0
    softmax = names.index("softmax")
    between = names[1:softmax]
    if names[softmax + 1 : softmax + 2] != ["bmm"] or not set(between) <= {"fill", "emb", "idx"}:
        return [], 0
    return between, at + softmax + 1


def _kernel(name: str, words: Vocabulary) -> dict[str, str]:
    return {
        feature: value for feature, values in words.kernels.items() for value, part in values.items() if part in name
    }


class _Values:
    """Where the values of one forward pass come from."""

    def __init__(self) -> None:
        self._roots: dict[int, int] = {}
        self._same: dict[int, int] = {}
        self._raw: dict[int, int] = {}
        self._activated: set[int] = set()
        self._planted = 0

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

    def derive(self, operator: Operator, activated: bool) -> None:
        """The results come from everything that was read."""
        roots = 0
        if not operator.name.startswith(_FRESH) and not operator.name.endswith("_like"):
            for read in operator.reads:
                roots |= self._roots.get(read, 0)
        self._write(operator, roots, activated)

    def forget(self, operator: Operator) -> None:
        """The results come from nowhere that is known."""
        self._write(operator, 0)

    def copy(self, operator: Operator) -> None:
        """The results are the first argument under another address."""
        if not operator.reads:
            return
        source = operator.reads[0]
        activated, value = source in self._activated, self._same.get(source, source)
        self._write(operator, self._roots.get(source, 0), activated)
        for written in operator.writes[:1]:
            if written != source:
                self._same[written] = value

    def is_gated(self, operator: Operator) -> bool:
        """Whether one operand is the result of an activation and the other a value of its own."""
        known = [read for read in operator.reads if self._roots.get(read)]
        return len(set(known)) == 2 and len(self._activated.intersection(known)) == 1

    def crosses(self, operands: tuple[int, ...]) -> bool:
        """Whether the first operand has a root that the second lacks."""
        roots = [self._roots.get(operand, 0) for operand in operands]
        return len(roots) == 2 and all(roots) and bool(roots[0] & ~roots[1])

    def _new_root(self) -> int:
        self._planted += 1
        return 1 << self._planted

    def _write(self, operator: Operator, roots: int, activated: bool = False) -> None:
        for written in operator.writes:
            if roots:
                self._roots[written] = roots
            else:
                self._roots.pop(written, None)
            self._same.pop(written, None)
            self._raw.pop(written, None)
            (self._activated.add if activated else self._activated.discard)(written)
