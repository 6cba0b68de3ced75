"""Versions of software, also in builds of torch that lack a part."""

from __future__ import annotations

import sys
import types
from typing import Never

import pytest
import torch

from pharoah.capture.inventory import find_loaded_version, versions
from pharoah_archetypes.inventory import inventory


def test_a_build_for_cuda_without_nccl_has_all_other_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    """As torch for Jetson is built. The build for CPUs here has no NCCL either."""
    monkeypatch.setattr(torch.version, "cuda", "12.6")
    monkeypatch.delattr(torch._C, "_nccl_version", raising=False)
    found = versions()
    assert (found["torch"], found["cuda"]) == (torch.__version__, "12.6")
    assert "nccl" not in found


def test_the_own_getattr_of_a_module_is_not_called(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one of the package `cuda` prints a FutureWarning, which would stand in the job's standard error."""
    software = next(one for one in inventory() if one.module not in sys.modules)
    module = types.ModuleType(software.module)

    def refuse(name: str) -> Never:
        raise AssertionError(f"{name} was asked for")

    module.__dict__["__getattr__"] = refuse
    monkeypatch.setitem(sys.modules, software.module, module)
    versions()
    module.__dict__["__version__"] = "9.9"
    assert versions()[software.name] == "9.9"


def test_a_module_that_states_its_version_by_its_getattr_counts_with_the_installed_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise two versions of a package with native code would count as one."""
    monkeypatch.setitem(sys.modules, "lazy", types.ModuleType("lazy"))
    assert find_loaded_version("pytest", "lazy") == pytest.__version__
