"""The driver of a GPU has reported a fault of the hardware in the kernel's log."""

from __future__ import annotations

from pathlib import Path

from pharoah_protocol.vocabulary import Resource, WorseDirection
from pharoah_provider.agent.signals._driver_faults import DriverFaults, read_catalogue
from pharoah_provider.agent.signals._kernel_log import KernelLog
from pharoah_provider.agent.signals._nvml import gpu_of_bus
from pharoah_provider.agent.signals._signal import TROUBLE_UNIT, AgentSignal

FAULTS = DriverFaults(KernelLog().lines, gpu_of_bus)


def override(path: Path) -> None:
    """Use what a site has written about codes in place of what the catalogue has. Raises ValueError."""
    FAULTS.catalogue = read_catalogue(path, FAULTS.catalogue)


SIGNAL = AgentSignal(
    name="gpu_faults",
    measures="whether the driver reported a fault of the GPU's hardware in the last ten minutes",
    unit=TROUBLE_UNIT,
    worse=WorseDirection.HIGHER,
    leaves_node=True,
    read=FAULTS.read,
    resource=Resource.COMPUTE,
)
