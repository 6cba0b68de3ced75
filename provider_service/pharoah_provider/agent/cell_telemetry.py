"""What the agent sees of its node while a degraded cell runs there, for the result of that cell.

A cell is the provider's own work on a node that nobody else uses, so all signals may leave with its result.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace

from pharoah_benchmarks.campaign.cell import Cell, CellResult
from pharoah_protocol.telemetry_samples import MOST_SAMPLES, TelemetrySample
from pharoah_provider.agent.telemetry import Sample, Telemetry

PERIOD_SECONDS = 0.5
"""As often as the cell samples itself."""

_MOST_OWN = MOST_SAMPLES // 2
"""Half of what a result may have; the other half is the cell's own."""


@dataclass
class CellTelemetry:
    """The samples of one cell."""

    telemetry: Telemetry
    period_seconds: float = PERIOD_SECONDS
    samples: list[Sample] = field(default_factory=list, init=False)

    async def watch(self) -> None:
        """Sample until it is cancelled, or the result of a cell has no room for more."""
        while len(self.samples) < _MOST_OWN:
            self.samples += self.telemetry.sample(stays=True)
            await asyncio.sleep(self.period_seconds)

    def added_to(self, cell: Cell, outcome: str) -> str:
        """The result of a cell, with the samples from when it began to train, in times relative to its onset.

        A result that cannot be read stays as it is: the provider refuses it and says why.
        """
        try:
            result = CellResult.from_json(outcome)
        except (ValueError, KeyError, TypeError, RecursionError):
            return outcome
        if cell.degradation is None or not result.began_at:
            return outcome
        onset = result.began_at + cell.degradation.onset_seconds
        own = [
            TelemetrySample(at_seconds=sample.sampled_at - onset, values=_named(sample))
            for sample in self.samples
            if sample.sampled_at >= result.began_at
        ][:_MOST_OWN]
        both = sorted([*result.telemetry, *own], key=lambda sample: sample.at_seconds)
        return replace(result, telemetry=both).to_json()


def _named(sample: Sample) -> dict[str, float]:
    """The values by the name of the signal, and of the device where a node has several."""
    device = f":{sample.device}" if sample.device else ""
    return {f"{name}{device}": value for name, value in sample.values.items()}
