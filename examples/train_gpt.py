"""A small GPT on the source code of Python's standard library. Plain PyTorch; no Pharoah unless --alerts is given.

python examples/train_gpt.py --steps 100
pharoah run -- python examples/train_gpt.py --steps 100
"""

from __future__ import annotations

import argparse
import contextlib
import random
import sysconfig
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.data import DataLoader, Dataset


class Text(Dataset[tuple[Tensor, Tensor]]):
    """Windows of `length` bytes and the bytes that follow them."""

    def __init__(self, length: int, items: int) -> None:
        self.length, self.items = length, items
        folder = Path(sysconfig.get_path("stdlib"))
        self.text = b"".join(path.read_bytes() for path in sorted(folder.glob("*.py"))[:60])

    def __len__(self) -> int:
        return self.items

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        at = random.Random(index).randrange(len(self.text) - self.length - 1)
        window = torch.tensor(list(self.text[at : at + self.length + 1]))
        return window[:-1], window[1:]


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm, self.mlp_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        qkv = self.qkv(self.attention_norm(x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.dropout(self.out(mixed.transpose(1, 2).reshape(batch, length, width)))
        return x + self.dropout(self.down(F.gelu(self.up(self.mlp_norm(x)))))


class GPT(nn.Module):
    def __init__(self, width: int, depth: int, heads: int, length: int) -> None:
        super().__init__()
        self.token, self.position = nn.Embedding(256, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(depth))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 256, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.token(x) + self.position(torch.arange(x.shape[1], device=x.device))
        for block in self.blocks:
            hidden = block(hidden)
        logits: Tensor = self.head(self.norm(hidden))
        return logits


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--length", type=int, default=128, help="tokens per sequence")
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--depth", type=int, default=4)
    parser.add_argument("--attention", choices=["flash", "math"], default="flash")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--workers", type=int, default=1, help="DataLoader processes")
    parser.add_argument("--losses", help="write the losses here, exactly, one per line")
    parser.add_argument("--alerts", help="append alerts to this file as they come")
    args = parser.parse_args()

    if args.alerts:
        import pharoah

        session = pharoah.register()

        @session.on_alert
        def note(alert: pharoah.Alert) -> None:
            with Path(args.alerts).open("a") as file:
                print(alert, file=file)

    torch.manual_seed(0)
    model = GPT(args.width, args.depth, args.width // 32, args.length)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    loader = DataLoader(Text(args.length, args.steps * args.batch), args.batch, num_workers=args.workers)
    kernel = SDPBackend.MATH if args.attention == "math" else SDPBackend.FLASH_ATTENTION
    half = torch.autocast("cpu", torch.bfloat16, enabled=args.dtype == "bfloat16")
    losses = []
    for step, (x, y) in enumerate(loader):
        with half, sdpa_kernel(kernel):
            loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        if step % 20 == 0:
            print(f"step {step:5d}  loss {losses[-1]:.4f}", flush=True)
    if args.losses:
        Path(args.losses).write_text("".join(f"{loss.hex()}\n" for loss in losses))
    with contextlib.suppress(IndexError):
        print(f"done: loss {losses[0]:.4f} -> {losses[-1]:.4f}")


if __name__ == "__main__":
    main()
