"""Checks for finite values pass in a dry run, and what they return has no memory of the size that was checked."""

from __future__ import annotations

import pytest

from tests.tenant_sdk.conftest import STEP, TRAIN, DryRunner

LITTLE_MEMORY = """
import resource
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (2 << 30), resource.getrlimit(resource.RLIMIT_AS)[1]))
"""
LOGITS = (8, 4096, 128256)
"""Shape of the scores of a language model: 4.2 billion, so that a mask of them has 3.9 GiB."""


@pytest.mark.parametrize("gpus", ["", "H100"])
def test_checks_of_large_tensors_pass_without_their_memory(dry_run_script: DryRunner, gpus: str) -> None:
    device = "cuda" if gpus else "cpu"
    checks = (
        f"logits = torch.empty({LOGITS}, device='{device}')\n"
        "assert not torch.isnan(logits).any()\n"
        "assert torch.isfinite(logits).all() and not torch.any(logits.isinf())\n"
        "if torch.isnan(logits).view(-1).any().item():\n    raise SystemExit(3)\n"
    )
    found = dry_run_script(TRAIN + LITTLE_MEMORY + checks + STEP, gpus=gpus)
    assert found.assumptions == ()
    assert 8 * 4096 * 128256 in found.cost.memory.events, "the job itself does allocate its masks"


@pytest.mark.parametrize("size", [16, 512])
@pytest.mark.parametrize(
    "use",
    [
        "mask = torch.isnan(x); mask |= torch.isinf(x); print(mask.shape)",
        "mask = torch.isfinite(x); mask &= x > 0; x.masked_fill(mask, 0.0)",
        "mask = torch.isfinite(x); mask[0] = False; mask.masked_fill_(x > 0, False); mask.logical_not_()",
        "x[torch.isnan(x)] = 0.0",
        "torch.where(torch.isnan(x), torch.zeros_like(x), x).mean()",
        "x.masked_fill(~torch.isfinite(x), 0.0).mean()",
        "(torch.isfinite(x).float() * x).mean()",
        "assert torch.isfinite(x)[3].all() and not torch.isnan(x)[:, 3].any()",
    ],
)
def test_masks_of_checks_can_be_used_and_changed(dry_run_script: DryRunner, use: str, size: int) -> None:
    used = f"with torch.no_grad():\n    x = torch.randn({size}, {size})\n    {use}\n"
    found = dry_run_script(TRAIN + used + STEP)
    assert found.fingerprint.archetype == dry_run_script(TRAIN + STEP).fingerprint.archetype
    assert found.assumptions == ()
