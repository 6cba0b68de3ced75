"""Many tiny operators on a GPU: measures the latency of launches."""

from __future__ import annotations

from pharoah_benchmarks.micro._families import launches
from pharoah_protocol.vocabulary import DeviceKind

BENCHMARK = launches("launch_cuda", DeviceKind.CUDA, count=5000)
