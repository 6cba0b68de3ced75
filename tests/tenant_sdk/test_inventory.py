"""Versions of software, also in builds of torch that lack a part."""

from __future__ import annotations

import pytest
import torch

from pharoah.capture.inventory import versions


def test_a_build_for_cuda_without_nccl_has_all_other_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    """As torch for Jetson is built. The build for CPUs here has no NCCL either."""
    monkeypatch.setattr(torch.version, "cuda", "12.6")
    monkeypatch.delattr(torch._C, "_nccl_version", raising=False)
    found = versions()
    assert (found["torch"], found["cuda"]) == (torch.__version__, "12.6")
    assert "nccl" not in found
