"""Versions of the software a job has imported. Reads package metadata; imports nothing."""

from __future__ import annotations

import platform
import sys
from contextlib import suppress
from importlib import metadata
from typing import Any

from pharoah.capture import hardware
from pharoah_archetypes.inventory import inventory
from pharoah_system.own_python import path_of_jobs


def versions() -> dict[str, str]:
    """Software to version: what the inventory knows and this process uses. Needs no CUDA context."""
    found = {
        software.name: version
        for software in inventory()
        if software.module in sys.modules and (version := find_loaded_version(software.name, software.module))
    }
    found["python"] = platform.python_version()
    if driver := hardware.driver():
        found["driver"] = driver
    torch = sys.modules.get("torch")
    return {**found, **_read_torch_versions(torch)} if torch is not None else found


def find_installed_versions() -> dict[str, str]:
    """Software to version: what the inventory knows and is installed here, whether it can be imported or not."""
    found = {software.name: version for software in inventory() if (version := find_installed_version(software.name))}
    return {**found, **versions()}


def find_stated_version(module: str) -> str:
    """What a loaded module states as its version; empty where it states none.

    The module's own `__getattr__` is not called: it may warn into the job's standard error, as that of `cuda` does,
    import other parts or raise.
    """
    stated = getattr(sys.modules.get(module), "__dict__", {}).get("__version__")
    return stated if isinstance(stated, str) else ""


def find_loaded_version(package: str, module: str) -> str:
    """The version of a package of which a module is loaded; empty where nothing states it.

    The module's own word comes first: a folder on the path may hide what is installed.
    """
    return find_stated_version(module) or find_installed_version(package)


def find_installed_version(package: str) -> str:
    """The version of a package that a job of this interpreter would import; empty when it is not installed."""
    found = find_distribution(package)
    return str(found.version) if found else ""


def find_distribution(package: str) -> metadata.Distribution | None:
    """What is stated about a package that a job of this interpreter would import; None when it is not installed."""
    return next(iter(metadata.distributions(name=package, path=path_of_jobs())), None)


def _read_torch_versions(torch: Any) -> dict[str, str]:
    from pharoah.torch_names import cuda_arch_flags

    found = {"torch": str(torch.__version__)}
    if torch.version.cuda:
        found["cuda"] = str(torch.version.cuda)
        with suppress(RuntimeError):  # torch refuses a cuDNN that it was not built for
            if torch.backends.cudnn.is_available():
                found["cudnn"] = str(torch.backends.cudnn.version())
        with suppress(AttributeError, RuntimeError):  # a build for CUDA may be without NCCL, as those for Jetson are
            found["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
        if architectures := cuda_arch_flags():  # needs no GPU, `get_arch_list` does
            found["architectures"] = str(architectures)
    return found
