"""Micro-benchmarks: one resource of a node each, in a few seconds.

A micro-benchmark is one file here, or an entry point of the group `pharoah.micro_benchmarks` in another distribution:
an object of the type `MicroBenchmark`. Its description is read by the agent and the provider, which have no torch, so a
module may import torch only inside the function that builds the kernel. Campaigns, monitoring and evaluation take the
benchmarks from this registry, so that a new one needs no other change. Modules whose name begins with an underscore
hold kernels that several benchmarks share, such as one for the CPU and one for a GPU.

`python -m pharoah_benchmarks.micro` measures (see `__main__`).
"""

from pharoah_benchmarks.micro._benchmark import MicroBenchmark, Need, Noise, Placement
from pharoah_benchmarks.micro._kernel import Check, CheckedKernel, Kernel
from pharoah_benchmarks.micro._order import SLOW_SECONDS, Answer, MeasureOrder
from pharoah_benchmarks.micro._place import NotPossible, Peer, Place
from pharoah_benchmarks.micro._registry import GROUP, MICRO_BENCHMARKS, device_count, is_on_gpu, suitable
from pharoah_protocol.vocabulary import Resource

__all__ = [
    "GROUP",
    "MICRO_BENCHMARKS",
    "SLOW_SECONDS",
    "Answer",
    "Check",
    "CheckedKernel",
    "Kernel",
    "MeasureOrder",
    "MicroBenchmark",
    "Need",
    "Noise",
    "NotPossible",
    "Peer",
    "Place",
    "Placement",
    "Resource",
    "device_count",
    "is_on_gpu",
    "suitable",
]
