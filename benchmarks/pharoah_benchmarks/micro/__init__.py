"""Micro-benchmarks: one resource of a node each, in a few seconds.

A micro-benchmark is one file here, or an entry point of the group `pharoah.micro_benchmarks` in another distribution:
an object of the type `MicroBenchmark`. Its description is read by the agent and the provider, which have no torch, so a
module may import torch only inside the function that builds the kernel. Campaigns, monitoring and evaluation take the
benchmarks from this registry, so that a new one needs no other change.

`python -m pharoah_benchmarks.micro` measures (see `__main__`).
"""

from pharoah_benchmarks.micro._benchmark import Kernel, MicroBenchmark, Noise, Placement
from pharoah_benchmarks.micro._registry import GROUP, MICRO_BENCHMARKS, suitable
from pharoah_protocol.vocabulary import Resource

__all__ = ["GROUP", "MICRO_BENCHMARKS", "Kernel", "MicroBenchmark", "Noise", "Placement", "Resource", "suitable"]
