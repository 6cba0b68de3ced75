"""A script that registers itself: one line in, alerts out. Runs with or without a provider.

export PHAROAH_ENDPOINT=unix:/run/pharoah/provider.sock
export PHAROAH_TOKEN_FILE=acme.token PHAROAH_PROVIDER_KEY_FILE=provider.pub
python examples/train_mlp.py --seconds 20
"""

from __future__ import annotations

import argparse
import time

import torch
import torch.nn.functional as F
from torch import nn

import pharoah


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--batch", type=int, default=256)
    args = parser.parse_args()

    session = pharoah.register(allow_beside_job=True)
    print(session.verdict, flush=True)

    @session.on_alert
    def say(alert: pharoah.Alert) -> None:
        print(alert, flush=True)

    torch.manual_seed(0)
    layers = [part for _ in range(4) for part in (nn.Linear(args.width, args.width), nn.ReLU())]
    model = nn.Sequential(*layers, nn.Linear(args.width, 16))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    truth = torch.randn(args.width, 16)
    until = time.monotonic() + args.seconds
    step = 0
    while time.monotonic() < until:
        x = torch.randn(args.batch, args.width)
        with torch.no_grad():
            y = x @ truth
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        session.step()
        step += 1
        if step % 200 == 0:
            print(f"step {step:5d}  loss {loss.item():.4f}", flush=True)
    session.finish()


if __name__ == "__main__":
    main()
