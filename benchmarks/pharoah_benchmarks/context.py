"""The context that a process runs in, read back from inside it.

`python -m pharoah_benchmarks.context` prints the facts as JSON; the agent runs it under its node profile.
"""

from __future__ import annotations

import json
import os
import resource
from typing import Any

from pharoah.capture.hardware import cpu_field
from pharoah_system.standard_streams import show


def effective_context() -> dict[str, Any]:
    """Facts of this process: device model, instruction set in force, threads, CPUs, data limit. Imports torch."""
    import torch

    limit, _ = resource.getrlimit(resource.RLIMIT_DATA)
    facts: dict[str, Any] = {
        "device": device_model(),
        "isa": torch.backends.cpu.get_cpu_capability().lower(),
        "threads": torch.get_num_threads(),
        "cpus": len(os.sched_getaffinity(0)),
        "memory_limit": 0 if limit == resource.RLIM_INFINITY else limit,
    }
    if torch.cuda.is_available():
        facts["gpu"] = torch.cuda.get_device_name(0)
    return facts


def device_model() -> str:
    """The model of the CPU, as the kernel names it."""
    return cpu_field("model name", "Processor", "CPU part") or os.uname().machine


if __name__ == "__main__":
    show(json.dumps(effective_context()))
