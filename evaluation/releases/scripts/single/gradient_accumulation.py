import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--accumulate", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--max-norm", type=float, default=1.0)
    args = parser.parse_args()

    torch.manual_seed(0)
    x = torch.randn(128, 10)
    data = TensorDataset(x, x @ torch.randn(10, 1))
    loader = DataLoader(data, batch_size=8, shuffle=True, drop_last=True)
    model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.LayerNorm(32), nn.Linear(32, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for epoch in range(args.epochs):
        optimizer.zero_grad()
        running = 0.0
        for i, (inputs, targets) in enumerate(loader):
            loss = nn.functional.mse_loss(model(inputs), targets) / args.accumulate
            loss.backward()
            running += loss.item()
            if (i + 1) % args.accumulate == 0:
                norm = nn.utils.clip_grad_norm_(model.parameters(), args.max_norm)
                optimizer.step()
                optimizer.zero_grad()
        print(f"epoch {epoch}: loss {running} norm {norm.item()}")


if __name__ == "__main__":
    main()
