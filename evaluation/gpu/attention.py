"""Which kernel torch takes for attention on this GPU, beside what a dry run expects."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator
from itertools import product
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend

from evaluation.figures import Figures
from pharoah.dryrun.attention_kernels import AttentionCall, Capability, choose_kernel

DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
WIDTHS = (8, 20, 64, 66, 128, 192, 256, 264)
"""Numbers of a head."""
LENGTHS = ((32, 32), (32, 48), (1, 33), (33, 1), (127, 127))
"""Positions of queries and of keys."""
MASKS = ("none", "causal", "square", "row", "keys", "gradient", "permuted", "broadcast")
DROPOUTS = (0.0, 0.1, 0.125)
BATCH, HEADS, GROUPS = 2, 4, 2
SHOWN = 12


def measure(figures: Figures, _: argparse.Namespace) -> None:
    """Ask torch and the dry run for the kernel of many calls."""
    capability = Capability(*torch.cuda.get_device_capability())
    unlike, seen, calls = Counter[str](), Counter[str](), 0
    for call in _calls():
        of_torch, of_dry_run = _chosen_by_torch(call), choose_kernel(call, capability)
        calls += 1
        seen[of_torch.name] += 1
        if of_torch != of_dry_run:
            shape = f"{call.query.dtype} of {tuple(call.query.shape)} and {tuple(call.key.shape)}"
            mask = "" if call.mask is None else f", mask of {tuple(call.mask.shape)}"
            unlike[f"{shape}{mask}, causal {call.causal}, dropout {call.dropout}, grouped {call.grouped}, gradient "
                   f"{call.needs_gradient}: torch {of_torch.name}, dry run {of_dry_run.name}"] += 1  # fmt: skip
    for line in list(unlike)[:SHOWN]:
        print(f"  {line}", flush=True)
    figures.details["unlike"] = list(unlike)
    figures.ratio("attention_kernel_as_torch_ratio", calls - unlike.total(), calls, 1.0)
    figures.add(
        "attention_kernels_taken", len(seen), interval=", ".join(f"{name.lower()} {n}" for name, n in seen.items())
    )


def _calls() -> Iterator[AttentionCall]:
    options = product(DTYPES, WIDTHS, LENGTHS, MASKS, DROPOUTS, (False, True), (False, True))
    for dtype, width, (queries, keys), mask, dropout, grouped, gradient in options:
        heads = GROUPS if grouped else HEADS
        settings: dict[str, Any] = {"dtype": dtype, "device": "cuda", "requires_grad": gradient}
        query = torch.empty(BATCH, HEADS, queries, width, **settings)
        key, value = (torch.empty(BATCH, heads, keys, width, **settings) for _ in range(2))
        added = _mask(mask, queries, keys, dtype)
        yield AttentionCall(query, key, value, added, dropout, mask == "causal", grouped)


def _mask(kind: str, queries: int, keys: int, dtype: torch.dtype) -> Tensor | None:
    shapes = {"square": (queries, keys), "row": (BATCH, 1, 1, keys), "keys": (BATCH, HEADS, queries, keys)}
    if kind == "permuted":  # as positions that are looked up for each head
        return torch.zeros(1, queries, keys, HEADS, dtype=dtype, device="cuda").permute(0, 3, 1, 2)
    if kind == "broadcast":
        return torch.zeros(queries, 1, dtype=dtype, device="cuda").expand(queries, keys)
    if kind == "gradient":
        return torch.zeros(shapes["square"], dtype=dtype, device="cuda", requires_grad=True)
    return torch.zeros(shapes[kind], dtype=dtype, device="cuda") if kind in shapes else None


def _chosen_by_torch(call: AttentionCall) -> SDPBackend:
    query, key, value = call.inputs
    choice = torch._fused_sdp_choice(
        query, key, value, call.mask, call.dropout, call.causal, scale=None, enable_gqa=call.grouped
    )
    return SDPBackend(choice)
