"""Sites whose nodes differ in devices and limits at random, with jobs whose every failure has a known cause.

A failure has one of three causes: the device (for some settings of a workload), a setting wherever it runs, or a limit
of the node that the job exceeds. Some nodes have limits that they do not state, and some sites have one or two nodes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import NamedTuple

import numpy as np

from pharoah_archetypes import Fingerprint
from pharoah_archetypes.catalogue import catalogue
from pharoah_learning.context_rule import identity
from pharoah_learning.evidence import Trial
from pharoah_learning.limits import limit_named
from pharoah_learning.release import NodeKind
from pharoah_protocol.vocabulary import DeviceKind, Outcome

GIB = 1 << 30
WORKLOADS = ("gpt", "bert", "vit", "mixtral")
DTYPES, ATTENTIONS, OPTIMIZERS = ("float32", "float16", "bfloat16"), ("flash", "math"), ("adamw/forloop", "sgd/foreach")
LENGTHS, BATCHES = (128, 256, 512, 1024, 2048), (2, 4, 8)
MEMORY_LIMITS = (0, 0, GIB, 2 * GIB, 4 * GIB, 8 * GIB)
"""What nodes state; 0 is no limit."""
LIMIT_SECONDS = 60.0
REPEATS = 5
CHANCE_FAILURE = 0.004
"""The share of runs that fail for no reason that anybody could learn."""


class Settings(NamedTuple):
    """What a cell trains."""

    workload: str
    dtype: str
    attention: str
    optimizer: str
    length: int
    batch: int

    def to_dict(self) -> dict[str, object]:
        """As a campaign states them."""
        return {name: value for name, value in self._asdict().items() if name != "workload"}

    @property
    def activations_bytes(self) -> int:
        """What the forward pass writes: scores of attention grow with the square of the length, and only if they are
        written."""
        width = 4 if self.dtype == "float32" else 2
        plain = self.batch * self.length * 96 * 1024
        scores = self.batch * self.length**2 * 64 if self.attention == "math" else 0
        return (plain + scores) * width

    @property
    def memory_bytes(self) -> int:
        """What it needs in all."""
        return 600_000_000 + self.activations_bytes

    @property
    def core_seconds(self) -> float:
        return self.batch * self.length * (1.5 if self.attention == "math" else 1.0) / 40


@dataclass(frozen=True)
class Node:
    """A node, with what it states and what it does not."""

    name: str
    device: str
    gpu: str
    memory: int
    cpus: int
    kernel: str
    states_memory: bool
    shared_memory: int
    """Bytes of /dev/shm, which no fact states."""
    descriptors: int

    @property
    def device_facts(self) -> tuple[str, ...]:
        return tuple(sorted([f"device={self.device}", "isa=avx2", *([f"gpu={self.gpu}"] if self.gpu else [])]))

    @property
    def facts(self) -> tuple[str, ...]:
        stated = self.memory if self.states_memory else 0
        more = (f"memory_limit={stated}", f"cpus={self.cpus}", f"threads={self.cpus}", f"kernel={self.kernel}")
        return tuple(sorted((*self.device_facts, *more)))

    @property
    def kind(self) -> NodeKind:
        return NodeKind(identity(self.device_facts), self.facts)


class End(NamedTuple):
    """How a run ends on a node, and why."""

    outcome: Outcome
    detail: str = ""
    stated: bool = True
    """Whether the cause is one that the facts of nodes can show."""


WORKS = End(Outcome.OK)


@dataclass(frozen=True)
class Layout:
    """A site with its causes of failures."""

    nodes: Sequence[Node]
    tried: Sequence[Node]
    """The nodes on which the campaign runs."""
    strangers: Sequence[Node]
    """Nodes of another provider that imports the table."""
    cells: Sequence[Settings]
    """The cells of the campaign."""
    bad_devices: frozenset[tuple[str, str, str]]
    """Device, workload and dtype or attention that fail together."""
    bad_settings: frozenset[tuple[str, str]]
    """Workload and dtype or attention that fail wherever they run."""
    killed: bool
    """Whether a job that has no memory is killed, and gets no error."""
    shared_memory_bytes: int
    descriptors: int
    """What loaders of data need."""
    uses_shared_memory: frozenset[str] = field(default_factory=frozenset)
    uses_descriptors: frozenset[str] = field(default_factory=frozenset)
    """Workloads that need so much of it."""

    def end(self, cell: Settings, node: Node) -> End:
        """How a job ends on a node, chance apart."""
        model = node.gpu or node.device
        for choice in (cell.dtype, cell.attention):
            if (cell.workload, choice) in self.bad_settings:
                return End(Outcome.NAN, "loss is NaN")
            if (model, cell.workload, choice) in self.bad_devices:
                return End(Outcome.ERROR, "RuntimeError: no kernel for this device")
        if cell.workload in self.uses_shared_memory and node.shared_memory < self.shared_memory_bytes:
            return End(Outcome.CRASH, "exit status -7", stated=False)
        if cell.workload in self.uses_descriptors and node.descriptors < self.descriptors:
            return End(Outcome.ERROR, "OSError: [Errno 24] Too many open files", stated=False)
        if node.memory and cell.memory_bytes > node.memory and not node.gpu:
            outcome, detail = (Outcome.CRASH, "exit status -9") if self.killed else (Outcome.MEMORY, "MemoryError")
            return End(outcome, detail, stated=node.states_memory)
        if cell.core_seconds / node.cpus > LIMIT_SECONDS and not node.gpu:
            return End(Outcome.TIMEOUT, f"longer than {LIMIT_SECONDS:g} s")
        return WORKS


def draw_layout(rng: np.random.Generator) -> Layout:
    """A site at random: from one node on, with one or two workloads in the campaign."""
    devices = [f"cpu-{name}" for name in rng.choice(list("abcdef"), int(rng.integers(1, 4)), replace=False)]
    gpus = ["", "", *map(str, rng.choice(["A100", "V100", "H100"], int(rng.integers(0, 2))))]
    kinds = [_draw_node(rng, "", devices, gpus) for _ in range(int(rng.integers(1, 6)))]
    nodes = [_like(kinds, f"n{number}", rng) for number in range(int(rng.integers(1, 17)))]
    strangers = [_draw_node(rng, f"s{number}", devices, gpus) for number in range(4)]
    tried = [node for node in nodes if rng.random() < 0.7] or nodes[:1]
    workloads = [str(one) for one in rng.choice(WORKLOADS, int(rng.integers(1, 3)), replace=False)]
    choices = [*DTYPES, *ATTENTIONS]
    models = [*devices, *filter(None, gpus)]
    bad_devices = {(models[int(rng.integers(len(models)))], w, str(rng.choice(choices))) for w in workloads}
    bad_settings = {(w, str(rng.choice(choices))) for w in workloads}
    return Layout(
        nodes=nodes,
        tried=tried,
        strangers=strangers,
        cells=list(_draw_cells(rng, workloads)),
        bad_devices=frozenset(one for one in bad_devices if rng.random() < 0.6),
        bad_settings=frozenset(one for one in bad_settings if rng.random() < 0.3),
        killed=bool(rng.random() < 0.4),
        shared_memory_bytes=512 << 20,
        descriptors=4096,
        uses_shared_memory=frozenset(w for w in workloads if rng.random() < 0.25),
        uses_descriptors=frozenset(w for w in workloads if rng.random() < 0.25),
    )


def _like(kinds: Sequence[Node], name: str, rng: np.random.Generator) -> Node:
    """A node of a kind that the site has several of; what nodes do not state is each one's own."""
    kind = kinds[int(rng.integers(len(kinds)))]
    shared, descriptors = (kind.shared_memory, kind.descriptors) if rng.random() < 0.8 else (64 << 20, 1024)
    return replace(kind, name=name, shared_memory=shared, descriptors=descriptors)


def _draw_node(rng: np.random.Generator, name: str, devices: Sequence[str], gpus: Sequence[str]) -> Node:
    return Node(
        name=name,
        device=devices[int(rng.integers(len(devices)))],
        gpu=gpus[int(rng.integers(len(gpus)))],
        memory=MEMORY_LIMITS[int(rng.integers(len(MEMORY_LIMITS)))],
        cpus=int(rng.choice([2, 4, 8])),
        kernel=str(rng.choice(["5.15", "6.1"])),
        states_memory=bool(rng.random() < 0.85),
        shared_memory=int(rng.choice([64 << 20, 8 * GIB], p=[0.2, 0.8])),
        descriptors=int(rng.choice([1024, 1 << 20], p=[0.2, 0.8])),
    )


def _draw_cells(rng: np.random.Generator, workloads: Sequence[str]) -> Iterator[Settings]:
    """A grid over some values of some settings, as a campaign file has it."""
    for workload in workloads:
        drawn = [
            [*map(str, rng.choice(values, int(rng.integers(1, most + 1)), replace=False))]
            for values, most in ((DTYPES, 2), (ATTENTIONS, 2), (OPTIMIZERS, 1), (LENGTHS, 4), (BATCHES, 2))
        ]
        for dtype, attention, optimizer, length, batch in product(*drawn):
            yield Settings(workload, dtype, attention, optimizer, int(length), int(batch))


def fingerprint_of(cell: Settings) -> Fingerprint:
    """What a dry run of a cell gives: the skeleton of a real family, and the sizes of the cell."""
    families = list(catalogue().values())
    skeleton = families[WORKLOADS.index(cell.workload)].skeleton
    return Fingerprint(
        archetype=skeleton.archetype,
        compute=skeleton.archetype,
        grammar=skeleton.text,
        features={"dtype": cell.dtype, "attention": cell.attention, "optimizer": cell.optimizer},
        sizes={"parameters": 40_000_000, "activations": cell.activations_bytes},
        versions={"torch": "2.13.0"},
    )


def run_campaign(layout: Layout, rng: np.random.Generator) -> list[Trial]:
    """The trials of the campaign: every cell on every tried node, once in each of its blocks."""
    texts = {cell: fingerprint_of(cell).to_json() for cell in layout.cells}
    trials = []
    for repeat in range(REPEATS):
        for node in layout.tried:
            for place, cell in enumerate(layout.cells):
                device = DeviceKind.CUDA if node.gpu else DeviceKind.CPU
                end = layout.end(cell, node)
                if rng.random() < CHANCE_FAILURE:
                    end = End(Outcome.ERROR, "ConnectionResetError: [Errno 104] Connection reset by peer")
                trials.append(
                    Trial(
                        workload=cell.workload,
                        settings=cell.to_dict(),
                        context_id=identity(node.facts),
                        device_id=node.kind.device_id,
                        outcome=end.outcome,
                        step_seconds=(0.5, 0.5, 0.5) if end.outcome is Outcome.OK else (),
                        fingerprint=texts[cell],
                        own_fingerprints=(texts[cell],),
                        node=node.name,
                        trial_id=f"{repeat}-{node.name}-{place}",
                        ran_at=1000.0 * repeat + place,
                        device=device,
                        context_device=device,
                        block=f"{repeat}-{node.name}",
                        facts=node.facts,
                        limit=limit_named(end.outcome, end.detail, device),
                    )
                )
    return trials
