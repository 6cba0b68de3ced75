"""Families of micro-benchmarks that differ in device, dtype or size only. Without torch: the agent reads them.

No round runs them unless it is asked for by name. They are meant for idle nodes; what may also work beside a job does
so for a small share of the time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pharoah_benchmarks.micro._benchmark import (
    CORE_BYTES_PER_SECOND,
    CORE_FLOPS,
    MicroBenchmark,
    Need,
    Noise,
    Placement,
)
from pharoah_benchmarks.micro._kernel import Kernel
from pharoah_benchmarks.micro._place import Place
from pharoah_protocol.vocabulary import DeviceKind, Resource

ASSUMED_NOISE = Noise(
    log_ratio_sd=0.25, source="assumed, above the 0.22 that is assumed for products; not measured between nodes yet"
)
REPEATS, LIMIT_SECONDS = 20, 1.0
"""At most a second of work for each: the whole set stays within a minute (`pharoah-agent benchmark`)."""
BESIDE_JOB_DUTY = 0.1
"""A check of answers is not urgent: beside a job it takes ten times as long and a tenth of the core."""
MIB = 1 << 20


def _on_request(
    name: str,
    device: DeviceKind,
    resource: Resource,
    measures: str,
    size: int,
    build: Callable[[Place], Kernel],
    **others: Any,
) -> MicroBenchmark:
    """A micro-benchmark that no round runs by itself."""
    common = {
        "dtype": "float32",
        "noise": ASSUMED_NOISE,
        "placement": Placement.EXCLUSIVE,
        "repeats": REPEATS,
        "limit_seconds": LIMIT_SECONDS,
        "selected": False,
    }
    return MicroBenchmark(
        name=name,
        device=device,
        resource=resource,
        measures=measures,
        size=size,
        build=build,
        **{**common, **others},
    )


def _beside_job(device: DeviceKind, fastest_seconds: float) -> dict[str, Any]:
    """What lets a check of answers run beside a job: on the CPU only, because the memory of a GPU is the job's."""
    if device is not DeviceKind.CPU:
        return {}
    return {"placement": Placement.BESIDE_JOB, "duty": BESIDE_JOB_DUTY, "fastest_seconds": fastest_seconds}


def products(name: str, device: DeviceKind, dtype: str, rows: int) -> MicroBenchmark:
    """Products of square matrices."""

    def build(_: Place) -> Kernel:
        from pharoah_benchmarks.micro_kernels.operators import Product

        return Product(device, dtype, rows)

    measures = "time of a product of two square matrices; size: their rows"
    return _on_request(name, device, Resource.COMPUTE, measures, rows, build, dtype=dtype)


def attention(name: str, device: DeviceKind, dtype: str, batch: int, length: int) -> MicroBenchmark:
    """Causal attention."""

    def build(_: Place) -> Kernel:
        from pharoah_benchmarks.micro_kernels.operators import compare_attention

        return compare_attention(device, dtype, batch, length)

    measures = f"time of causal attention with four heads over {batch} sequences; size: their length"
    return _on_request(name, device, Resource.COMPUTE, measures, length, build, dtype=dtype)


def convolutions(name: str, device: DeviceKind, dtype: str, batch: int, channels: int) -> MicroBenchmark:
    """Convolutions over images of 32 x 32."""

    def build(_: Place) -> Kernel:
        from pharoah_benchmarks.micro_kernels.operators import compare_convolution

        return compare_convolution(device, dtype, batch, channels, 32)

    measures = f"time of a convolution of 3 x 3 over {batch} images of 32 x 32; size: their channels"
    return _on_request(name, device, Resource.COMPUTE, measures, channels, build, dtype=dtype)


def launches(name: str, device: DeviceKind, count: int) -> MicroBenchmark:
    """Many tiny operators."""

    def build(_: Place) -> Kernel:
        from pharoah_benchmarks.micro_kernels.operators import Launches

        return Launches(device, count)

    measures = "time to launch many operators on one number each; size: their count"
    return _on_request(name, device, Resource.COMPUTE, measures, count, build)


def copies(name: str, source: DeviceKind, target: DeviceKind, copied_bytes: int) -> MicroBenchmark:
    """Copies from the memory of one device to that of the same or another one; one of them is a GPU."""

    def build(_: Place) -> Kernel:
        from pharoah_benchmarks.micro_kernels.memory import Copy

        return Copy(source, target, copied_bytes)

    resource = Resource.MEMORY_BANDWIDTH if source is target else Resource.HOST_LINK
    measures = f"time of a copy from the memory of {source} to that of {target}; size: the bytes that are copied"
    return _on_request(name, DeviceKind.CUDA, resource, measures, copied_bytes, build)


def patterns(name: str, device: DeviceKind, tested_bytes: int) -> MicroBenchmark:
    """Patterns that are written and read back."""

    def build(_: Place) -> Kernel:
        from pharoah_benchmarks.micro_kernels.memory import Patterns

        return Patterns(device, tested_bytes)

    return _on_request(
        name,
        device,
        Resource.MEMORY_CAPACITY,
        "whether memory returns the walking patterns that were written; size: the bytes that are tested",
        tested_bytes,
        build,
        dtype="int64",
        **_beside_job(device, fastest_seconds=2 * tested_bytes / CORE_BYTES_PER_SECOND),
    )


def reproducibility(name: str, device: DeviceKind, rows: int, count: int) -> MicroBenchmark:
    """Chains of products that must have the same bits."""

    def build(_: Place) -> Kernel:
        from pharoah_benchmarks.micro_kernels.reproducibility import Reproduced

        return Reproduced(device, rows, count)

    return _on_request(
        name,
        device,
        Resource.COMPUTE,
        f"whether chains of {count} products have the same bits; size: the rows of the matrices",
        rows,
        build,
        **_beside_job(device, fastest_seconds=2 * rows**3 * count / CORE_FLOPS),
    )


def communication(name: str, device: DeviceKind, operation: str, what: str, sent_bytes: int) -> MicroBenchmark:
    """One operation of several processes; `operation` is a member of `together.Operation`."""

    def build(place: Place) -> Kernel:
        peer = place.require_peer()
        from pharoah_benchmarks.micro_kernels.together import Communication, Operation

        return Communication(peer, device, Operation(operation), sent_bytes)

    measures = f"time of {what} of two or more processes; size: the bytes of each"
    return _on_request(name, device, Resource.NETWORK, measures, sent_bytes, build, need=Need.PARTNER)


def overlap(name: str, device: DeviceKind, sent_bytes: int, rows: int, count: int) -> MicroBenchmark:
    """Computing while the processes communicate."""

    def build(place: Place) -> Kernel:
        peer = place.require_peer()
        from pharoah_benchmarks.micro_kernels.together import Overlap

        return Overlap(peer, device, sent_bytes, rows, count)

    measures = f"time of {count} products of {rows} rows during an all-reduce; size: its bytes"
    return _on_request(name, device, Resource.NETWORK, measures, sent_bytes, build, need=Need.PARTNER)


def training(name: str, device: DeviceKind, workload: str, settings: dict[str, Any]) -> MicroBenchmark:
    """Steps of a workload of campaigns; `settings` has its `batch`."""

    def build(_: Place) -> Kernel:
        from pharoah_benchmarks.micro_kernels.training import TrainingStep

        return TrainingStep(workload, settings, device)

    measures = f"time of a training step of the workload {workload}; size: its batch"
    dtype = settings.get("dtype", "float32")
    return _on_request(name, device, Resource.COMPUTE, measures, settings["batch"], build, dtype=dtype)


def files(name: str, kind: str, what: str, size_bytes: int, need: Need | None = None) -> MicroBenchmark:
    """Files on a local disk, or in the remote folder; `kind` is a class of `micro_kernels.files`."""

    def build(place: Place) -> Kernel:
        folder = place.local_folder() if need is None else place.require_remote_folder()
        from pharoah_benchmarks.micro_kernels import files

        made: Kernel = getattr(files, kind)(folder, size_bytes)
        return made

    measures = f"time to {what}; size: the bytes of the file"
    return _on_request(name, DeviceKind.CPU, Resource.STORAGE, measures, size_bytes, build, dtype="uint8", need=need)


def loading(name: str, samples: int) -> MicroBenchmark:
    """A DataLoader that reads samples from a local disk."""

    def build(place: Place) -> Kernel:
        from pharoah_benchmarks.micro_kernels.loading import Loading

        return Loading(place.local_folder(), samples)

    measures = "time in which two workers load samples of 64 KiB; size: their count"
    return _on_request(name, DeviceKind.CPU, Resource.STORAGE, measures, samples, build)
