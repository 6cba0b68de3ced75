"""The kernel's pressure stall information (docs.kernel.org/accounting/psi.html); some kernels have none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pharoah_provider.agent.signals._files import text_of
from pharoah_provider.agent.signals._signal import NotOnThisNode, Reading

PRESSURE = Path("/proc/pressure")
LAST_10_SECONDS, LAST_MINUTE = 1, 2
"""Places of the averages in a line."""


def waiting(resource: str, average: int) -> Iterator[Reading]:
    """The share of the time, 0 to 1, in which some task has waited for `cpu`, `memory` or `io`."""
    try:
        yield Reading(float((text_of(PRESSURE / resource) or "").split()[average].partition("=")[2]) / 100)
    except (ValueError, IndexError):
        raise NotOnThisNode(f"{PRESSURE / resource}: this kernel has no pressure stall information") from None
