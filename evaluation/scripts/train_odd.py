"""A DDP job of which one rank may run other code: `torchrun --nproc-per-node 4 train_odd.py --rank 2 --how loss`.

Shapes and collectives are the same on all ranks, so that nothing fails and nothing hangs.
"""

from __future__ import annotations

import argparse
import contextlib
import time

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F

WIDTH, TOKENS, STEPS = 32, 64, 8
HOWS = ("none", "activation", "attention", "product", "loss", "dtype", "optimizer", "absent")
"""What the odd rank does; an absent rank joins a collective late, and all others wait for it."""
ABSENT_SECONDS = 20


class Net(nn.Module):
    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how
        self.embedding = nn.Embedding(TOKENS, WIDTH)
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.head = nn.Linear(WIDTH, TOKENS)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embedding(ids)
        for layer in self.layers:
            x = x + (F.gelu if self.how == "activation" else F.relu)(layer(x))
            if self.how == "product":
                x = x + x @ x.transpose(-1, -2) @ x
        causal = self.how != "attention"
        x = x + F.scaled_dot_product_attention(x[:, None], x[:, None], x[:, None], is_causal=causal)[:, 0]
        logits: Tensor = self.head(x)
        return logits


def loss_of(logits: Tensor, ids: Tensor, how: str) -> Tensor:
    if how == "loss":
        return F.mse_loss(logits, F.one_hot(ids, TOKENS).float())
    return F.cross_entropy(logits.flatten(0, 1), ids.flatten())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--how", choices=HOWS, default="none")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    how = arguments.how if dist.get_rank() == arguments.rank else "none"
    torch.manual_seed(0)
    model = nn.parallel.DistributedDataParallel(Net(how))
    make = torch.optim.SGD if how == "optimizer" else torch.optim.AdamW
    optimizer = make(model.parameters(), lr=1e-3)
    for number in range(STEPS):
        if how == "absent" and number == STEPS // 2:
            time.sleep(ABSENT_SECONDS)
        ids = torch.randint(TOKENS, (4, 16))
        with torch.autocast("cpu", torch.bfloat16) if how == "dtype" else contextlib.nullcontext():
            loss = loss_of(model(ids), ids, how)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
