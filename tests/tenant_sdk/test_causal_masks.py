"""Whether attention is causal is a question of a mask's values: in a running job, and in a dry run, which has none."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from pharoah.capture.causal_masks import is_causal
from tests.tenant_sdk.conftest import DryRunner

LENGTH = 24
CAUSAL = {
    "triangle of ones": "torch.tril(torch.ones(T, T))",
    "triangle of flags": "torch.ones(T, T, dtype=torch.bool).tril()",
    "flags of what is hidden": "torch.triu(torch.ones(T, T), diagonal=1).bool()",
    "minus infinity above the diagonal": "torch.triu(torch.full((T, T), float('-inf')), diagonal=1)",
    "lowest number above the diagonal": "torch.full((T, T), torch.finfo(torch.float32).min).triu(1)",
    "as nn.Transformer makes it": "nn.Transformer.generate_square_subsequent_mask(T)",
    "infinite flags of it": "nn.Transformer.generate_square_subsequent_mask(T).isinf()",
    "positions compared": "torch.arange(T)[:, None] >= torch.arange(T)[None, :]",
    "a window of earlier positions": "((p := torch.arange(T))[:, None] >= p) & (p[:, None] < p + 4)",
    "part of a long buffer": "torch.tril(torch.ones(2048, 2048)).view(1, 1, 2048, 2048)[0, :, :T, :T]",
    "scores and -10000": "-1e4 * (1 - torch.tril(torch.ones(600, 600)))[:T, :T]",
    "with the padding of a batch": "torch.where(torch.ones(T, T).tril().bool() & (ids != 0)[:, None], 0.0, -1e9)",
    "in low precision": "torch.triu(torch.full((T, T), float('-inf')), 1).bfloat16().float()",
    "expanded for heads": "torch.tril(torch.ones(300, 300))[None, None].expand(2, 4, 300, 300)[0, 0, :T, :T]",
}
OTHER = {
    "padding": "(m := (ids != 0).float())[:, :, None] * m[:, None]",
    "a window on both sides": "(torch.arange(T)[:, None] - torch.arange(T)).abs() <= 3",
    "two compared positions, both sides": "((p := torch.arange(T))[:, None] < p + 4) & (p[:, None] > p - 4)",
    "windows that were shifted": "-100.0 * ((w := torch.arange(T) // 8)[:, None] != w)",
    "each position alone": "torch.eye(T)",
    "everything": "torch.ones(T, T)",
    "nothing": "torch.zeros(T, T)",
    "distances": "-(torch.arange(T)[:, None] - torch.arange(T)).abs() / 8",
}
MASKS = [*((name, text, True) for name, text in CAUSAL.items()), *((name, text, False) for name, text in OTHER.items())]
by_name = pytest.mark.parametrize(("name", "text", "causal"), MASKS, ids=[name for name, *_ in MASKS])

SCRIPT = """
import torch
from torch import nn
from torch.nn import functional as F
T = {length}
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.mix, self.out = nn.Embedding(50, 32), nn.Linear(32, 96), nn.Linear(32, 50)
    def forward(self, ids):
        q, k, v = self.mix(self.embed(ids)).chunk(3, -1)
        mask = {mask}
        {attention}
        return self.out(mixed)
model = Model()
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(4):
    ids = torch.randint(1, 50, (3, T))
    ids[:, -3:] = 0
    F.cross_entropy(model(ids).flatten(0, 1), ids.flatten()).backward()
    optimizer.step()
    optimizer.zero_grad()
"""
FUSED = "mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)"
ADDED = "mixed = (q @ k.transpose(1, 2) + mask).softmax(-1) @ v"
FILLED = "mixed = (q @ k.transpose(1, 2)).masked_fill(mask == 0, -1e9).softmax(-1) @ v"


def is_causal_in_a_dry_run(mask: str, attention: str, folder: Path, dry_run: DryRunner) -> bool:
    script = folder / "train.py"
    script.write_text(SCRIPT.format(length=LENGTH, mask=mask, attention=attention))
    found = dry_run([sys.executable, str(script)], 60)
    return "causal" in found.fingerprint.grammar


@by_name
def test_values_prove_it(name: str, text: str, causal: bool) -> None:
    ids = torch.randint(1, 50, (3, LENGTH))
    ids[:, -3:] = 0
    assert is_causal(eval(text, {"torch": torch, "nn": torch.nn, "T": LENGTH, "ids": ids})) is causal


@by_name
def test_a_dry_run_follows_the_values(name: str, text: str, causal: bool, tmp_path: Path, dry_run: DryRunner) -> None:
    attention = FILLED if "ones" in text and "where" not in text and "1e4" not in text else ADDED
    assert is_causal_in_a_dry_run(text, attention, tmp_path, dry_run) is causal


@pytest.mark.parametrize("text", [CAUSAL["triangle of flags"], CAUSAL["positions compared"]])
def test_a_mask_that_a_kernel_takes_is_read(text: str, tmp_path: Path, dry_run: DryRunner) -> None:
    assert is_causal_in_a_dry_run(text, FUSED, tmp_path, dry_run)


def test_a_mask_that_is_changed_through_a_view_is_not_known_any_more(tmp_path: Path, dry_run: DryRunner) -> None:
    changed = "torch.triu(torch.full((T, T), -1e9), 1); mask[:, :] = 0"
    assert not is_causal_in_a_dry_run(changed, ADDED, tmp_path, dry_run)


@pytest.mark.parametrize(
    "mask",
    [
        "torch.ones(T, T).view(torch.int32).bool()",
        "torch.triu(torch.ones(T, 2 * T), 1)[:, T:]",
        "torch.ones(T, T).unflatten(1, (4, T // 4)).flatten(1)",
        "torch.ones(T, T, 1).squeeze(-1).repeat(1, 1)",
    ],
)
def test_masks_whose_corner_cannot_be_followed_end_no_dry_run(mask: str, tmp_path: Path, dry_run: DryRunner) -> None:
    assert not is_causal_in_a_dry_run(mask, FILLED, tmp_path, dry_run)
