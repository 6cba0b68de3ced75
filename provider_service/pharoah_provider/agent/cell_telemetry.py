"""What the agent sees of its node while a degraded cell runs there, for the result of that cell.

A cell is the provider's own work on a node that nobody else uses, so all signals may leave with its result.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from itertools import groupby, zip_longest

from pharoah_benchmarks.campaign.cell import Cell, CellResult
from pharoah_protocol.signal_features import SignalKind
from pharoah_protocol.telemetry_samples import MAX_SAMPLES, TelemetrySample
from pharoah_provider.agent.telemetry import Sample, Telemetry

PERIOD_SECONDS = 0.5
"""As often as the cell samples itself."""

_MAX_OWN = MAX_SAMPLES // 2
"""Half of what a result may have; the other half is the cell's own."""


@dataclass
class CellTelemetry:
    """The samples of one cell."""

    telemetry: Telemetry
    period_seconds: float = PERIOD_SECONDS
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep
    samples: list[Sample] = field(default_factory=list, init=False)

    async def watch(self) -> None:
        """Sample until it is cancelled. A cell that lasts, or a node with many devices, fills what a result may have:
        then every other moment is left out, and the next ones come half as often."""
        while True:
            new = await asyncio.to_thread(self.telemetry.sample, stays=True)
            while len(self.samples) + len(new) > _MAX_OWN and self._thin():
                self.period_seconds *= 2
            self.samples += new[: _MAX_OWN - len(self.samples)]
            await self.pause(self.period_seconds)

    def _thin(self) -> bool:
        """Leave out every other moment; what counters have counted there is added to the next one. False if there is
        only one moment left."""
        moments = [list(moment) for _, moment in groupby(self.samples, key=lambda sample: sample.sampled_at)]
        counters = {signal.name for signal in self.telemetry.signals if signal.kind is SignalKind.COUNTER}
        pairs = zip_longest(moments[::2], moments[1::2])
        self.samples = [one for left_out, kept in pairs for one in _with_counts(left_out, kept, counters)]
        return len(moments) > 1

    def add_to(self, cell: Cell, outcome: str) -> str:
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
            TelemetrySample(at_seconds=sample.sampled_at - onset, values=_name(sample))
            for sample in self.samples
            if sample.sampled_at >= result.began_at
        ][:_MAX_OWN]
        both = sorted([*result.telemetry, *own], key=lambda sample: sample.at_seconds)
        return replace(result, telemetry=both).to_json()


def _with_counts(left_out: list[Sample], kept: list[Sample] | None, counters: set[str]) -> list[Sample]:
    """The moment that is kept, with the counts of the one before it, which is not. The last one may be alone."""
    if kept is None:
        return left_out
    before = {sample.device: sample.values for sample in left_out}
    return [
        replace(sample, values={
            name: value + (before.get(sample.device, {}).get(name, 0.0) if name in counters else 0.0)
            for name, value in sample.values.items()
        })
        for sample in kept
    ]  # fmt: skip


def _name(sample: Sample) -> dict[str, float]:
    """The values by the name of the signal, and of the device where a node has several."""
    device = f":{sample.device}" if sample.device else ""
    return {f"{name}{device}": value for name, value in sample.values.items()}
