"""A character LSTM: a workload no campaign of this repository has ever run, so its verdict is `unknown`."""

from __future__ import annotations

import argparse

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class CharacterModel(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.embed, self.lstm, self.head = (
            nn.Embedding(128, width),
            nn.LSTM(width, width, 2),
            nn.Linear(width, 128),
        )

    def forward(self, x: Tensor) -> Tensor:
        hidden, _ = self.lstm(self.embed(x))
        logits: Tensor = self.head(hidden)
        return logits


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=50)
    args = parser.parse_args()
    torch.manual_seed(0)
    model = CharacterModel(128)
    optimizer = torch.optim.AdamW(model.parameters())
    pattern = torch.arange(4096) % 97
    for step in range(args.steps):
        start = 64 * step % 2048
        text = pattern[start : start + 65 * 16].view(65, 16)
        loss = F.cross_entropy(model(text[:-1]).flatten(0, 1), text[1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    print(f"done: loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
