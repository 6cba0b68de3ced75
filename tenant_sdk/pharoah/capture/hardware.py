"""Facts about this machine that need neither a CUDA context nor a library."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

DRY_RUN_GPUS = "PHAROAH_DRY_RUN_GPUS"
"""Environment of a dry run: names of the GPUs to answer with, comma-separated; empty on a machine without GPUs."""

_NVIDIA = Path("/proc/driver/nvidia")


def gpu_names() -> list[str]:
    """Model names of the NVIDIA GPUs the job would see, in the job's order."""
    cards = [
        (_field(card / "information", "Model:"), _field(card / "information", "GPU UUID:"))
        for card in sorted(_NVIDIA.glob("gpus/*"))
    ]
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
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


def simulated_gpus() -> list[str]:
    """In a dry run: the GPUs it answers with. Elsewhere none."""
    return [name for name in os.environ.get(DRY_RUN_GPUS, "").split(",") if name]


@cache
def facts() -> dict[str, str]:
    """Canonical facts: `gpu`, `gpus`, `driver`, `cpu`, `cpus`, `memory` (log2 of bytes); absent when not there."""
    gpus = simulated_gpus() or gpu_names()
    found = {
        "gpu": gpus[0] if gpus else "",
        "gpus": str(len(gpus)) if gpus else "",
        "driver": driver(),
        "cpu": _field(Path("/proc/cpuinfo"), "model name"),
        "cpus": str(os.cpu_count() or ""),
        "memory": f"2^{_memory_bytes().bit_length() - 1}",
    }
    return {name: value for name, value in found.items() if value}


def driver() -> str:
    """Version of the NVIDIA kernel module (`570.86.15`); empty without one."""
    try:
        words = (_NVIDIA / "version").read_text().split()
    except OSError:
        return ""
    return next((word for word in words if word[0].isdigit()), "")


def _memory_bytes() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _field(path: Path, name: str) -> str:
    try:
        for line in path.read_text().splitlines():
            if line.startswith(name):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return ""
