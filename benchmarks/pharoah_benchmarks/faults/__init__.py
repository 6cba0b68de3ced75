"""Faults: what a campaign does to a cell while it trains, with a dose, an onset and a ramp.

A fault is one file here, or an entry point of the group `pharoah.faults` in another distribution: an object of the type
`Fault`. It acts inside the process of one rank, in a process beside it, or between the ranks. Its description is read
by the provider, which has no torch, so a module may import torch only inside the function that begins the fault.
"""

from pharoah_benchmarks.faults._fault import (
    NOTHING,
    Between,
    Dose,
    Effect,
    Fault,
    FaultError,
    Place,
    Schedule,
)
from pharoah_benchmarks.faults._injection import beside_command, inject, ready
from pharoah_benchmarks.faults._registry import FAULTS, GROUP, name_now

__all__ = [
    "FAULTS",
    "GROUP",
    "NOTHING",
    "Between",
    "Dose",
    "Effect",
    "Fault",
    "FaultError",
    "Place",
    "Schedule",
    "beside_command",
    "inject",
    "name_now",
    "ready",
]
