"""A decoder on text: the standard library's own sources, byte by byte."""

from __future__ import annotations

import sysconfig
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from pharoah_benchmarks.workloads import Workload

KERNELS = {"math": SDPBackend.MATH, "flash": SDPBackend.FLASH_ATTENTION}


class Layer(nn.Module):
    """One transformer layer."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before_attention, self.before_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.project, self.merge = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        shape = (batch, length, self.heads, width // self.heads)
        q, k, v = (part.reshape(shape).transpose(1, 2) for part in self.project(self.before_attention(x)).chunk(3, -1))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.merge(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.before_mlp(x))  # type: ignore[no-any-return]


class GPT(nn.Module):
    """A decoder over bytes."""

    def __init__(self, width: int, depth: int, heads: int, length: int) -> None:
        super().__init__()
        self.token, self.place = nn.Embedding(256, width), nn.Embedding(length, width)
        self.layers = nn.Sequential(*(Layer(width, heads) for _ in range(depth)))
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 256, bias=False))

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.token(x) + self.place(torch.arange(x.shape[1], device=x.device))
        return self.head(self.layers(hidden))  # type: ignore[no-any-return]


def build(
    batch: int = 4,
    length: int = 128,
    width: int = 128,
    depth: int = 4,
    heads: int = 4,
    attention: str = "flash",
) -> Workload:
    """`length` is in bytes; `attention` is a key of KERNELS."""
    text = torch.frombuffer(bytearray(_text()), dtype=torch.uint8).to(torch.get_default_device())

    def draw() -> tuple[Tensor, Tensor]:
        starts = torch.randint(len(text) - length - 1, (batch,))
        rows = text[starts[:, None] + torch.arange(length + 1)].long()
        return rows[:, :-1], rows[:, 1:]

    def loss(model: nn.Module, drawn: tuple[Tensor, ...]) -> Tensor:
        x, y = drawn
        return F.cross_entropy(model(x).flatten(0, 1), y.flatten())

    return Workload(GPT(width, depth, heads, length), draw, loss, [lambda: sdpa_kernel(KERNELS[attention])])


def _text() -> bytes:
    folder = Path(sysconfig.get_path("stdlib"))
    return b"".join(path.read_bytes() for path in sorted(folder.glob("*.py"))[:20])
