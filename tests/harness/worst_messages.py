"""The worst messages of an agent: those whose reading takes the longest, as they are and as an order lets them pass."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import cache
from typing import Any

from pharoah_archetypes import Fingerprint
from pharoah_archetypes.operators import BACKWARD, FORWARD
from pharoah_archetypes.sequences import MAX_SEQUENCE
from pharoah_archetypes.vocabulary import vocabulary
from pharoah_benchmarks.campaign.cell import Cell, CellResult
from pharoah_protocol.bounds import MAX_DURATIONS, MAX_WINDOW_VALUES, MAX_WINDOWS
from pharoah_protocol.telemetry_samples import MAX_SAMPLES, TelemetrySample
from pharoah_protocol.windows import Window
from pharoah_provider.cell_results import AnswerBounds

PASSES = "passes:"
"""Begins the name of an answer that the provider has to take."""

ResultOf = Callable[..., str]
"""The honest result of a cell as JSON, with the fields that are given by name."""


def _ruler(length: int, classes: int) -> list[str]:
    """A sequence whose name takes long: some classes at the distances of a ruler's marks, the others at random."""
    names = sorted(vocabulary().known_classes - vocabulary().collectives)[:classes]
    chance, common, rare = random.Random(1), names[: classes // 2], names[classes // 2 :]
    found = []
    for at in range(1, length + 1):
        mark = (at & -at).bit_length() - 1
        found.append(rare[mark % len(rare)] if at % 2 == 0 else chance.choice(common))
    return found


def _grammar(length: int, classes: int) -> str:
    return "\n".join(f"{phase}: {' '.join(_ruler(length, classes))}" for phase in (FORWARD, BACKWARD))


MAX_GRAMMAR = _grammar(19_000, 24)
"""Two phases of as many classes as were read before names of grammars had a bound."""


@cache
def passing_grammar() -> str:
    """The one that takes the longest to name among those that are read."""
    classes = 20
    return _grammar(MAX_SEQUENCE // classes // 2, classes)


def fingerprint(grammar: str) -> str:
    """A fingerprint with this grammar."""
    sizes = {"parameters": 1000, "activations": 1000}
    return Fingerprint("ab" * 16, "12" * 16, grammar, {"attention": "flash"}, sizes, {"torch": "2.13.0"}).to_json()


def worst_results(result_of: ResultOf) -> dict[str, Callable[[Cell], str]]:
    """What the answer to a cell can be at its worst; some pass."""

    def with_fields(**changes: Any) -> Callable[[Cell], str]:
        return lambda cell: result_of(cell, **changes)

    values = {f"signal_{number}": 0.123456789012345 for number in range(MAX_WINDOW_VALUES)}
    return {
        "the longest grammar": with_fields(fingerprint=fingerprint(MAX_GRAMMAR)),
        "lists in lists": with_fields(context=json.loads("[" * 500 + "]" * 500)),
        "empty lists": lambda cell: result_of(cell, context=[[]] * (AnswerBounds.from_cell(cell).result_bytes // 5)),
        "empty lists, too long": with_fields(context=[[]] * 1_000_000),
        "100,000 times of steps": with_fields(step_seconds=[0.1] * MAX_DURATIONS),
        "windows": with_fields(windows=[{"at_seconds": 1.0, "values": values}] * MAX_WINDOWS),
        "telemetry": with_fields(telemetry=[{"at_seconds": 1.0, "values": values}] * (MAX_SAMPLES // 4)),
        "no JSON": lambda cell: "[" * 60_000,
        "a long number": lambda cell: result_of(cell)[:-1] + ', "began_at": ' + "9" * 60_000 + "}",
        f"{PASSES} the longest grammar": with_fields(fingerprint=fingerprint(passing_grammar())),
    }


def longest_that_passes(cell: Cell, result: CellResult) -> str:
    """The result, filled up with as many windows and as much telemetry as the cell may have, in as many bytes."""
    if cell.degradation is None:
        return result.to_json()
    bounds, values = AnswerBounds.from_cell(cell), {f"s{number}": 0.5 for number in range(MAX_WINDOW_VALUES)}
    windows = [Window(at_seconds=0.5 * at, values=values) for at in range(bounds.windows // 4)]
    sample = TelemetrySample(at_seconds=1.0, values=values)
    sample_bytes = len(json.dumps(asdict(sample))) + 2
    left = bounds.result_bytes - len(replace(result, windows=windows).to_json())
    count = min(bounds.samples, left // sample_bytes)
    return replace(result, windows=windows, telemetry=[sample] * count).to_json()
