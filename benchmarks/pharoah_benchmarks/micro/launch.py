"""Many tiny operators on the CPU: measures the host, as a job of small kernels does."""

from __future__ import annotations

from pharoah_benchmarks.micro._families import launches
from pharoah_protocol.vocabulary import DeviceKind

BENCHMARK = launches("launch", DeviceKind.CPU, count=5000)
