"""Cells of campaigns in which versions of a library behave as planted, in complete blocks on several nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pharoah_archetypes import Fingerprint
from pharoah_archetypes.canonical import parse
from pharoah_learning.evidence import Trial
from pharoah_protocol.vocabulary import Outcome

GRAMMAR = "fwd: emb (gemm attn gemm act gemm)+ gemm nll\nbwd: grad\nwith: causal norm=layer"
OTHER_GRAMMAR = "fwd: emb (gemm attn gemm act gemm)+ idx gemm nll\nbwd: grad\nwith: causal norm=layer"


@dataclass(frozen=True)
class Planted:
    """How a version behaves."""

    factor: float = 1.0
    """Step time over that of other versions."""
    failing_ratio: float = 0.0
    grammar: str = GRAMMAR
    code: str = ""
    """Digest of the functions of the library that run."""


def archetype_of(grammar: str = GRAMMAR) -> str:
    return parse(grammar).archetype


def version_trials(
    planted: Mapping[str, Planted],
    *,
    library: str = "transformers",
    contexts: Sequence[str] = ("a", "b"),
    nodes: int = 2,
    blocks: int = 3,
    noise: float = 0.01,
    seed: int = 0,
    only: Mapping[str, Sequence[str]] | None = None,
    others: Mapping[str, Mapping[str, str]] | None = None,
) -> list[Trial]:
    """Each version once in each block of each node, with a block and a node that are slow in their own way.

    `only`: the contexts that some versions ran in, instead of all. `others`: versions of other libraries by version.
    """
    rng = np.random.default_rng(seed)
    found = []
    for context in contexts:
        for node in (f"{context}-{number}" for number in range(nodes)):
            slow_node = rng.normal(0, 0.1)
            for block in (f"{node}/{number}" for number in range(blocks)):
                level = slow_node + rng.normal(0, 0.05)
                for version, behaviour in planted.items():
                    if only and context not in only.get(version, contexts):
                        continue
                    failed = rng.random() < behaviour.failing_ratio
                    seconds = 0.1 * behaviour.factor * float(np.exp(level + rng.normal(0, noise)))
                    found.append(
                        Trial(
                            workload="gpt",
                            settings={"attention": "math", "environment": f"{library}=={version}"},
                            context_id=context,
                            device_id="cpu",
                            outcome=Outcome.ERROR if failed else Outcome.OK,
                            step_seconds=() if failed else (seconds,) * 4,
                            fingerprint=_fingerprint(library, version, behaviour, (others or {}).get(version, {})),
                            node=node,
                            trial_id=f"{block}/{version}",
                            block=block,
                        )
                    )
    return found


def _fingerprint(library: str, version: str, behaviour: Planted, others: Mapping[str, str]) -> str:
    return Fingerprint(
        archetype_of(behaviour.grammar),
        "12" * 16,
        behaviour.grammar,
        {"attention": "math"},
        {"parameters": 1 << 20, "activations": 1 << 24},
        {"torch": "2.13.0+cpu", library: version, **others},
        code={library: behaviour.code} if behaviour.code else {},
    ).to_json()
