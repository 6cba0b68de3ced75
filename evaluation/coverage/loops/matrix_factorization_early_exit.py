# explicit-feedback matrix factorization on a ratings csv; stops when the RMSE is good enough or stalls
import csv
import os
import sys

import numpy as np
import pandas as pd
import torch
from torch import nn

CSV = "ratings.csv"
K = 6
TARGET_RMSE = 0.55
MAX_EPOCHS = 60
torch.manual_seed(0)

if not os.path.exists(CSV):
    rng = np.random.default_rng(0)
    u, v = rng.normal(size=(50, 2)), rng.normal(size=(40, 2))
    with open(CSV, "w", newline="") as f:
        w = csv.writer(f)
        w.writerow(["user", "item", "rating"])
        for a in range(50):
            for b in rng.choice(40, 18, replace=False):
                r = 3 + 0.8 * u[a] @ v[b] + 0.2 * rng.normal()
                w.writerow([f"u{a}", f"i{b}", round(float(np.clip(r, 1, 5)) * 2) / 2])

df = pd.read_csv(CSV)
users = {k: i for i, k in enumerate(df.user.unique())}
items = {k: i for i, k in enumerate(df.item.unique())}
df["u"], df["i"] = df.user.map(users), df.item.map(items)
df = df.sample(frac=1, random_state=1).reset_index(drop=True)
cut = int(0.85 * len(df))
mean = float(df.rating[:cut].mean())
print(f"{len(users)} users, {len(items)} items, {len(df)} ratings, mean {mean:.2f}")

dev = "cuda" if torch.cuda.is_available() else "cpu"


def cols(part):
    return (torch.tensor(part.u.values, device=dev), torch.tensor(part.i.values, device=dev),
            torch.tensor(part.rating.values, dtype=torch.float32, device=dev))


tr, te = cols(df[:cut]), cols(df[cut:])


class MF(nn.Module):
    def __init__(self):
        super().__init__()
        self.P = nn.Embedding(len(users), K)
        self.Q = nn.Embedding(len(items), K)
        self.bu = nn.Embedding(len(users), 1)
        self.bi = nn.Embedding(len(items), 1)
        nn.init.normal_(self.P.weight, std=0.1)
        nn.init.normal_(self.Q.weight, std=0.1)
        nn.init.zeros_(self.bu.weight)
        nn.init.zeros_(self.bi.weight)

    def forward(self, u, i):
        return mean + (self.P(u) * self.Q(i)).sum(1) + self.bu(u).squeeze(-1) + self.bi(i).squeeze(-1)


model = MF().to(dev)
opt = torch.optim.Adam(model.parameters(), lr=0.03, weight_decay=1e-4)


def rmse(part):
    with torch.no_grad():
        return torch.sqrt(nn.functional.mse_loss(model(part[0], part[1]), part[2])).item()


best, stalled = rmse(te), 0
print("start rmse", round(best, 4))
for epoch in range(1, MAX_EPOCHS + 1):
    order = torch.randperm(cut, device=dev)
    for chunk in order.split(128):
        pred = model(tr[0][chunk], tr[1][chunk])
        loss = ((pred - tr[2][chunk]) ** 2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    cur = rmse(te)
    if not np.isfinite(cur):
        print("diverged")
        sys.exit(1)
    print(f"epoch {epoch:2d} train {rmse(tr):.4f} test {cur:.4f}")
    if cur < TARGET_RMSE:
        print("target reached")
        break
    if cur < best - 1e-4:
        best, stalled = cur, 0
        torch.save(model.state_dict(), "mf.pt")
    else:
        stalled += 1
        if stalled >= 4:
            print("no progress for 4 epochs")
            break
else:
    print("ran out of epochs")

with torch.no_grad():
    scores = model(torch.zeros(len(items), dtype=torch.long, device=dev), torch.arange(len(items), device=dev))
    top = scores.topk(3).indices.tolist()
names = list(items)
print("recommend to", list(users)[0], [names[t] for t in top])
sys.exit(0)
