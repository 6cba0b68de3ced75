"""A network interface has counted errors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pharoah_protocol.vocabulary import Resource, WorseDirection
from pharoah_provider.agent.signals._counters import increased_lately
from pharoah_provider.agent.signals._files import SYS, real_interfaces, summed
from pharoah_provider.agent.signals._signal import TROUBLE_UNIT, AgentSignal, Reading

ETHERNET = ("rx_errors", "tx_errors", "rx_crc_errors")
INFINIBAND = ("symbol_error", "port_rcv_errors", "link_error_recovery", "local_link_integrity_errors")
"""Names of counters (Documentation/ABI of the Linux kernel: sysfs-class-net-statistics, sysfs-class-infiniband)."""
LEAST_ERRORS = 100
"""In a minute. Links count single errors while they are healthy."""


def errors(root: Path = SYS) -> Iterator[Reading]:
    """For each interface."""
    for interface in real_interfaces(root):
        yield from summed((interface / "statistics" / name for name in ETHERNET), interface.name)
    for port in sorted((root / "class/infiniband").glob("*/ports/*")):
        yield from summed((port / "counters" / name for name in INFINIBAND), f"{port.parts[-3]}.{port.name}")


SIGNAL = AgentSignal(
    name="network_errors",
    measures="whether a network interface counted 100 errors or more in the last minute",
    unit=TROUBLE_UNIT,
    worse=WorseDirection.HIGHER,
    leaves_node=True,
    read=increased_lately(errors, LEAST_ERRORS),
    resource=Resource.NETWORK,
)
