"""What a dry run with a mitigation changes: the model and the batches of a script, each of them once."""

from __future__ import annotations

import pytest

from pharoah.cost.memory import peak
from pharoah.cost.mitigation import Mitigation
from pharoah.cost.step import ACTIVATION
from tests.tenant_sdk.conftest import STEP, TRAIN, DryRunner
from tests.tenant_sdk.test_memory_fit import LOADED

BATCHES = """
from torch.utils.data import BatchSampler, DataLoader, TensorDataset
rows = TensorDataset(torch.randn(256, 8))
first = DataLoader(rows, batch_size=64, shuffle=True)
class Shard:
    def __init__(self, sampler):
        self.batch_sampler, self.batch_size = sampler, sampler.batch_size
    def __len__(self):
        return len(self.batch_sampler)
    def __iter__(self):
        return (batch for batch in self.batch_sampler if len(batch) == self.batch_size)
"""
"""A loader of the script, and a sampler that gives whole batches of another one, as accelerate has it for each rank."""


@pytest.mark.parametrize(
    "loader",
    [
        "first",
        "DataLoader(rows, batch_sampler=first.batch_sampler)",
        "DataLoader(rows, batch_sampler=DataLoader(rows, batch_sampler=first.batch_sampler).batch_sampler)",
        "DataLoader(rows, batch_sampler=Shard(first.batch_sampler))",
        "DataLoader(rows, batch_size=first.batch_size)",
        "DataLoader(rows, batch_sampler=BatchSampler(range(256), first.batch_sampler.batch_size, False))",
        "DataLoader(rows, batch_sampler=BatchSampler(range(256), 64, False))",
    ],
)
def test_a_batch_is_divided_once_however_often_libraries_wrap_its_loader(
    dry_run_script: DryRunner, loader: str
) -> None:
    check = f"sizes = [len(x) for (x,) in {loader}]\nassert sizes == [32] * 8, sizes\n"
    assert dry_run_script(TRAIN + BATCHES + check + STEP, change=Mitigation(batches=2)).fingerprint


def test_a_loader_that_makes_no_batches_has_nothing_to_divide(dry_run_script: DryRunner) -> None:
    check = (
        "loader = DataLoader([torch.zeros(64, 8)] * 2, batch_size=None)\n"
        "shapes = [tuple(x.shape) for x in loader]\nassert shapes == [(64, 8)] * 2, shapes\n"
    )
    assert dry_run_script(TRAIN + BATCHES + check + STEP, change=Mitigation(batches=2)).fingerprint


CALLED_FIRST = {
    "a transformation of data": ("augment = nn.Dropout(0.1)\n", "x = augment(x)"),
    "a frozen encoder": ("encoder = nn.Linear(256, 256).requires_grad_(False)\n", "x = encoder(x)"),
    "the model, for an evaluation": ("", "with torch.no_grad(): model(x)"),
}


@pytest.mark.parametrize(("made", "called"), CALLED_FIRST.values(), ids=CALLED_FIRST)
def test_what_is_called_before_the_model_is_not_the_model(dry_run_script: DryRunner, made: str, called: str) -> None:
    source = LOADED.replace("optimizer =", f"{made}optimizer =").replace(
        "    optimizer.zero", f"    {called}\n    optimizer.zero"
    )
    plain, saved = (
        peak(dry_run_script(source, change=change).cost.memory).roles[ACTIVATION]
        for change in (None, Mitigation(checkpointing=True))
    )
    assert saved < plain / 2
    assert dry_run_script(source, change=Mitigation(autocast=True)).fingerprint.features["dtype"] == "bfloat16"


def test_a_model_that_serves_computes_in_autocast_without_gradients(dry_run_script: DryRunner) -> None:
    serving = (
        TRAIN.partition("optimizer")[0] + "with torch.no_grad():\n    for _ in range(4): model(torch.randn(4, 8))\n"
    )
    for change, dtype in ((None, "float32"), (Mitigation(autocast=True), "bfloat16")):
        assert dry_run_script(serving, change=change).fingerprint.features["dtype"] == dtype
