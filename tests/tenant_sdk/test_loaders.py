"""Datasets that expect to be read by a worker of a loader."""

from __future__ import annotations

import pytest

from tests.tenant_sdk.conftest import TRAIN, DryRunner

LOOP = """
seen = 0
for epoch in range(4):
    for x in loader:
        assert data.get_worker_info() is None
        optimizer.zero_grad()
        model(x).pow(2).mean().backward()
        optimizer.step()
        seen += 1
"""
OPENED = """
from torch.utils import data
class Rows(data.Dataset):
    def __len__(self):
        return 64
    def __getitem__(self, at):
        assert data.get_worker_info().num_workers == 2
        return self.rows[at]
def open_rows(number):
    info = data.get_worker_info()
    assert (number, info.id, info.num_workers) == (0, 0, 2)
    info.dataset.rows = torch.zeros(64, 8)
loader = data.DataLoader(Rows(), batch_size=8, num_workers=2, worker_init_fn=open_rows, persistent_workers=True)
"""
STREAM = """
from torch.utils import data
class Stream(data.IterableDataset):
    def __iter__(self):
        info = data.get_worker_info()
        return iter([torch.zeros(8)] * (64 // info.num_workers) if info.id == 0 else [])
loader = data.DataLoader(Stream(), batch_size=8, num_workers=2)
"""
SHARED_OUT = """
from torch.utils import data
class Range(data.IterableDataset):
    start, end = 0, 16
    def __iter__(self):
        return (torch.zeros(8) for _ in range(self.start, self.end))
def share_out(number):
    info = data.get_worker_info()
    own = (info.dataset.end - info.dataset.start) // info.num_workers
    info.dataset.start, info.dataset.end = info.dataset.start + number * own, info.dataset.start + (number + 1) * own
loader = data.DataLoader(Range(), batch_size=8, num_workers=2, worker_init_fn=share_out, drop_last=True)
"""
"""Each worker has one batch. In a real run each epoch begins with workers that have the whole range again."""
SET_UP = """
from torch.utils import data
loader = data.DataLoader(data.TensorDataset(torch.zeros(64, 8)), batch_size=8, collate_fn=lambda rows: rows[0][0])
"""


@pytest.mark.parametrize("loader", [OPENED, STREAM, SHARED_OUT, SET_UP], ids=["opened", "stream", "shared out", "none"])
def test_this_process_stands_for_the_first_worker(dry_run_script: DryRunner, loader: str) -> None:
    found = dry_run_script(TRAIN + loader + LOOP)
    assert found.fingerprint.grammar.startswith("fwd: gemm act gemm")
    assert not found.assumptions
