"""Facts about this machine that need neither a CUDA context nor a library."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path

DRY_RUN_GPUS = "PHAROAH_DRY_RUN_GPUS"
"""Environment of a dry run: names of the GPUs to answer with, comma-separated; empty on a machine without GPUs."""
DRY_RUN_DRIVER = "PHAROAH_DRY_RUN_DRIVER"
"""Environment of a dry run: NVIDIA driver of the machine that the job is checked for; empty when it is not known."""

_NVIDIA = Path("/proc/driver/nvidia")
_CUDA = Path("/usr/local")
"""The folder in which the packages of the CUDA toolkit have theirs, `cuda-12.4` or `cuda`."""


def gpu_names(environ: Mapping[str, str] | None = None) -> list[str]:
    """Model names of the NVIDIA GPUs that a job would see in an environment, in the job's order. Without an environment
    it is that of this process."""
    cards = [
        (_field(card / "information", "Model:"), _field(card / "information", "GPU UUID:"))
        for card in sorted(_NVIDIA.glob("gpus/*"))
    ]
    visible = (os.environ if environ is None else environ).get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return [name for name, _ in cards]
    names: list[str] = []
    for entry in visible.split(","):
        wanted = entry.strip()
        found = [
            name
            for index, (name, uuid) in enumerate(cards)
            if wanted == str(index) or (wanted.startswith("GPU-") and uuid.startswith(wanted))
        ]
        if not found:
            break  # as CUDA does: the first that does not exist ends the list
        names.append(found[0])
    return names


def is_part_of_a_gpu(environ: Mapping[str, str]) -> bool:
    """Whether the first device that a job would see in an environment is a part of an NVIDIA GPU (MIG).

    Such a device is named MIG-<UUID>, or MIG-GPU-<UUID>/<instance>/<instance> under drivers before 470 (NVIDIA
    Multi-Instance GPU User Guide). The files of the driver name whole GPUs only, so `gpu_names` does not know it.
    """
    first = environ.get("CUDA_VISIBLE_DEVICES", "").partition(",")[0].strip()
    return first.startswith("MIG-") and any(_NVIDIA.glob("gpus/*"))


def list_simulated_gpus() -> list[str]:
    """In a dry run: the GPUs it answers with, of which the job may choose some by CUDA_VISIBLE_DEVICES. Elsewhere none.

    Identifiers of GPUs are those of a real machine, and so may numbers be of which none is known, so they leave all. So
    does an empty value, which the dry run itself sets; -1 hides all.
    """
    gpus = [name for name in os.environ.get(DRY_RUN_GPUS, "").split(",") if name]
    places = [place.strip() for place in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")]
    if not all(place.lstrip("-").isdecimal() for place in places):
        return gpus
    known = (place.isdecimal() and int(place) < len(gpus) for place in places)
    count = next((at for at, is_known in enumerate(known) if not is_known), len(places))  # as CUDA does
    if not count and not places[0].startswith("-"):
        return gpus
    return [gpus[int(place)] for place in places[:count]]


@cache
def facts() -> dict[str, str]:
    """Canonical facts: `gpu`, `gpus`, `driver`, `cpu`, `cpus`, `memory` (log2 of bytes); absent when not there."""
    gpus = list_simulated_gpus() or gpu_names()
    found = {
        "gpu": gpus[0] if gpus else "",
        "gpus": str(len(gpus)) if gpus else "",
        "driver": driver(),
        "cpu": cpu_field("model name"),
        "cpus": str(os.cpu_count() or ""),
        "memory": f"2^{_memory_bytes().bit_length() - 1}",
    }
    return {name: value for name, value in found.items() if value}


def driver() -> str:
    """Version of the NVIDIA kernel module (`570.86.15`); empty without one. A dry run has that of its target."""
    if DRY_RUN_DRIVER in os.environ:
        return os.environ[DRY_RUN_DRIVER]
    try:
        words = (_NVIDIA / "version").read_text().split()
    except OSError:
        return ""
    return next((word for word in words if word[0].isdigit()), "")


def forward_compatibility() -> str:
    """Version of a forward-compatibility package (`cuda-compat`) of this machine, of one of several; empty without one.

    Such a package brings a newer user-mode driver (`libcuda`) than belongs to the kernel module.
    """
    folders = [*_CUDA.glob("cuda*/compat"), *map(Path, os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep))]
    found = {
        library.name.removeprefix("libcuda.so.")
        for folder in folders
        if folder.is_absolute()
        for library in folder.glob("libcuda.so.*.*")
    }
    return max(found - {driver()}, default="")


def _memory_bytes() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def cpu_field(*names: str) -> str:
    """The first field of /proc/cpuinfo with one of the names; empty without one."""
    return _field(Path("/proc/cpuinfo"), *names)


def _field(path: Path, *names: str) -> str:
    try:
        for line in path.read_text().splitlines():
            if line.startswith(names):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return ""
