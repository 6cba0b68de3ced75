import csv
import logging
import sys

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="[%(levelname)s] %(message)s")
logger = logging.getLogger("train")


def write_csv(path, n=400):
    g = torch.Generator().manual_seed(4)
    x = torch.randn(n, 6, generator=g)
    y = (x[:, 0] * 2 - x[:, 1] * x[:, 2]).exp().clamp(max=50) + 0.1 * torch.rand(n, generator=g)
    with open(path, "w", newline="") as f:
        w = csv.writer(f)
        w.writerow([f"f{i}" for i in range(6)] + ["price"])
        for i in range(n):
            row = [f"{v:.5f}" for v in x[i].tolist()] + [f"{y[i].item():.5f}"]
            if i % 97 == 50:
                row[3] = "nan"  # dirty rows, as in real life
            w.writerow(row)


class Prices(Dataset):
    def __init__(self, path):
        with open(path) as f:
            rows = list(csv.reader(f))[1:]
        self.t = torch.tensor([[float(v) for v in r] for r in rows])

    def __len__(self):
        return self.t.size(0)

    def __getitem__(self, i):
        return self.t[i, :6], self.t[i, 6].log()


class ResMLP(nn.Module):
    def __init__(self, d=6, h=48, depth=3):
        super().__init__()
        self.inp = nn.Linear(d, h)
        self.blocks = nn.ModuleList(
            [nn.Sequential(nn.LayerNorm(h), nn.Linear(h, h), nn.SiLU(), nn.Linear(h, h)) for _ in range(depth)]
        )
        self.mu, self.logvar = nn.Linear(h, 1), nn.Linear(h, 1)

    def forward(self, x):
        x = self.inp(x)
        for b in self.blocks:
            x = x + b(x)
        return self.mu(x).squeeze(-1), self.logvar(x).squeeze(-1).clamp(-6, 4)


def train(epochs=3, accum=4, device=None):
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    write_csv("prices.csv")
    loader = DataLoader(Prices("prices.csv"), batch_size=8, shuffle=True, drop_last=True)
    model = ResMLP().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    criterion = nn.GaussianNLLLoss()
    skipped = bad_grads = updates = 0
    for epoch in range(epochs):
        model.train()
        optimizer.zero_grad()
        run, cnt = 0.0, 0
        for i, (x, y) in enumerate(loader):
            x, y = x.to(device), y.to(device)
            mu, logvar = model(x)
            loss = criterion(mu, y, logvar.exp()) / accum
            if not torch.isfinite(loss):
                logger.warning("epoch %d batch %d: loss is %s, skipping", epoch, i, loss.item())
                skipped += 1
                continue
            loss.backward()
            run += loss.item() * accum
            cnt += 1
            if (i + 1) % accum == 0 or (i + 1) == len(loader):
                norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                if torch.isnan(norm) or torch.isinf(norm):
                    bad_grads += 1
                    optimizer.zero_grad()
                    continue
                optimizer.step()
                optimizer.zero_grad()
                updates += 1
        logger.info("epoch %d mean nll %.4f (%d batches, %d skipped so far)", epoch, run / max(cnt, 1), cnt, skipped)
    logger.info("updates=%d skipped=%d bad_grads=%d", updates, skipped, bad_grads)
    return model


if __name__ == "__main__":
    torch.manual_seed(0)
    m = train()
    if any(not torch.isfinite(p).all() for p in m.parameters()):
        sys.exit("model has non-finite weights")
