"""Checkpoints that were saved on GPUs, as scripts resume from them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from pharoah._errors import UnknownReason
from pharoah.cost.memory import peak
from tests.tenant_sdk.conftest import DryRunner

WIDTH = 512
MODEL_BYTES = 4 * (WIDTH * WIDTH + WIDTH)
TABLE_BYTES = 8 << 20
RESUMED = f"""
import torch
from torch import nn
loaded = torch.load(CALL)
assert loaded["step"] == 7
model = nn.Linear({WIDTH}, {WIDTH}).cuda()
model.load_state_dict(loaded["model"])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.randn(4, {WIDTH}, device="cuda")).pow(2).mean().backward()
    optimizer.step()
"""
"""A script that keeps what it has loaded."""
LOCATIONS = {
    "nothing": "",
    "a table": ", map_location={'cuda:0': 'cuda:%d' % 0}",
    "a table without the place": ", map_location={'cuda:1': 'cuda:0'}",
    "a function": ", map_location=lambda storage, location: storage.cuda(0)",
    "a function that leaves it": ", map_location=lambda storage, location: None",
    "a name": ", map_location='cuda:0'",
    "a device": ", map_location=torch.device('cuda', 0)",
}


@pytest.fixture
def saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkpoint of tensors on `cuda:0`, as torch.save writes it there."""
    return save(tmp_path / "checkpoint.pt", monkeypatch)


def save(path: Path, monkeypatch: pytest.MonkeyPatch, location: str = "cuda:0", *, legacy: bool = False) -> Path:
    content = {
        "model": torch.nn.Linear(WIDTH, WIDTH).state_dict(),
        "table": torch.zeros(TABLE_BYTES // 4),
        "step": 7,
    }
    with monkeypatch.context() as patched:
        patched.setattr(torch.serialization, "location_tag", lambda _: location)
        torch.save(content, path, _use_new_zipfile_serialization=not legacy)
    return path


def gpu_bytes(dry_run_script: DryRunner, call: str, gpus: str = "1x H100") -> int:
    """The peak on the GPU of the script that loads a checkpoint so."""
    return peak(dry_run_script(RESUMED.replace("CALL", call), gpus=gpus).cost.memory).bytes


@pytest.mark.parametrize("options", LOCATIONS.values(), ids=LOCATIONS)
def test_a_checkpoint_of_a_gpu_is_read_and_counts_where_it_is_loaded_to(
    dry_run_script: DryRunner, saved: Path, options: str
) -> None:
    on_host = gpu_bytes(dry_run_script, f"{str(saved)!r}, map_location='cpu'")
    assert gpu_bytes(dry_run_script, f"{str(saved)!r}{options}") == on_host + MODEL_BYTES + TABLE_BYTES


def test_a_checkpoint_in_the_old_format_is_read(
    dry_run_script: DryRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(save(tmp_path / "checkpoint.pt", monkeypatch, legacy=True))
    on_host = gpu_bytes(dry_run_script, f"{path!r}, map_location='cpu'")
    assert gpu_bytes(dry_run_script, repr(path)) == on_host + MODEL_BYTES + TABLE_BYTES


@pytest.mark.parametrize("options", ["", ", map_location={'cuda:0': 'cuda:1'}"])
def test_a_checkpoint_of_a_gpu_is_read_where_none_are_simulated(
    dry_run_script: DryRunner, saved: Path, options: str
) -> None:
    found = dry_run_script(RESUMED.replace("CALL", f"{str(saved)!r}{options}"))
    assert found.fingerprint.grammar.startswith("fwd: gemm")


def test_the_file_may_be_given_by_its_name(dry_run_script: DryRunner, saved: Path) -> None:
    assert dry_run_script(RESUMED.replace("CALL", f"f={str(saved)!r}, map_location='cpu'")).fingerprint.grammar


def test_a_checkpoint_of_more_gpus_than_there_are_is_the_reason(
    dry_run_script: DryRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(save(tmp_path / "checkpoint.pt", monkeypatch, "cuda:3"))
    with pytest.raises(UnknownReason, match=r"device 3 but torch\.cuda\.device_count\(\) is 1"):
        gpu_bytes(dry_run_script, repr(path))
    assert gpu_bytes(dry_run_script, repr(path), gpus="4x H100") > TABLE_BYTES
