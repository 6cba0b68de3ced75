import argparse
import logging
from dataclasses import asdict, dataclass

import numpy as np
import pandas as pd
import torch
import torch.nn as nn
from sklearn.preprocessing import StandardScaler
from torch.utils.data import DataLoader, Dataset

logger = logging.getLogger("forecast")

@dataclass
class TrainConfig:
    model: str = "tcn"
    lookback: int = 24
    horizon: int = 6
    hidden: int = 16
    epochs: int = 2
    batch_size: int = 32
    lr: float = 5e-3
    folds: int = 3

def synth_load(n=420):
    idx = pd.date_range("2021-01-01", periods=n, freq="h")
    rng = np.random.default_rng(0)
    t = np.arange(n)
    load = 10 + 3 * np.sin(2 * np.pi * t / 24) + np.where(idx.dayofweek >= 5, -2, 0) + 0.01 * t + rng.normal(0, 0.4, n)
    temp = 15 + 8 * np.sin(2 * np.pi * t / 24 - 1) + rng.normal(0, 1, n)
    return pd.DataFrame({"load": load, "temp": temp, "hour": idx.hour / 23.0}, index=idx)

class Windows(Dataset):
    def __init__(self, arr, lookback, horizon):
        self.arr = torch.as_tensor(arr, dtype=torch.float32)
        self.lb, self.h = lookback, horizon

    def __len__(self):
        return max(0, len(self.arr) - self.lb - self.h + 1)

    def __getitem__(self, i):
        return self.arr[i:i + self.lb], self.arr[i + self.lb:i + self.lb + self.h, 0]

class CausalBlock(nn.Module):
    def __init__(self, c_in, c_out, dilation):
        super().__init__()
        self.pad = nn.ConstantPad1d((2 * dilation, 0), 0.0)
        self.conv = nn.utils.parametrizations.weight_norm(nn.Conv1d(c_in, c_out, 3, dilation=dilation))
        self.skip = nn.Conv1d(c_in, c_out, 1) if c_in != c_out else nn.Identity()

    def forward(self, x):
        return torch.relu(self.conv(self.pad(x))) + self.skip(x)

class TCN(nn.Module):
    def __init__(self, feats, hidden, horizon):
        super().__init__()
        self.body = nn.Sequential(*[CausalBlock(feats if i == 0 else hidden, hidden, 2 ** i) for i in range(3)])
        self.head = nn.Linear(hidden, horizon)

    def forward(self, x):
        return self.head(self.body(x.transpose(1, 2))[:, :, -1])

class GRUNet(nn.Module):
    def __init__(self, feats, hidden, horizon):
        super().__init__()
        self.rnn = nn.GRU(feats, hidden, batch_first=True)
        self.head = nn.Linear(hidden, horizon)

    def forward(self, x):
        _, h = self.rnn(x)
        return self.head(h[-1])

def fit_fold(cfg, train_arr, valid_arr, device):
    model = (TCN if cfg.model == "tcn" else GRUNet)(train_arr.shape[1], cfg.hidden, cfg.horizon).to(device)
    opt = torch.optim.AdamW(model.parameters(), lr=cfg.lr)
    train = DataLoader(Windows(train_arr, cfg.lookback, cfg.horizon), cfg.batch_size, shuffle=True)
    valid = DataLoader(Windows(valid_arr, cfg.lookback, cfg.horizon), 64)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=cfg.lr, total_steps=cfg.epochs * len(train))
    loss_fn = nn.HuberLoss()
    best = {"mae": np.inf, "state": None}
    for epoch in range(cfg.epochs):
        model.train()
        losses = []
        for x, y in train:
            loss = loss_fn(model(x.to(device)), y.to(device))
            opt.zero_grad()
            loss.backward()
            opt.step()
            sched.step()
            losses.append(loss.item())
        model.eval()
        with torch.no_grad():
            err = torch.cat([(model(x.to(device)).cpu() - y).abs() for x, y in valid])
        mae = err.mean().item()
        logger.info("  epoch %d train %.4f valid MAE %.4f (h=1 %.3f, h=%d %.3f)", epoch, np.mean(losses), mae,
                    err[:, 0].mean(), cfg.horizon, err[:, -1].mean())
        if mae < best["mae"]:
            best = {"mae": mae, "state": {k: v.clone() for k, v in model.state_dict().items()}}
    model.load_state_dict(best["state"])
    return model, best["mae"]

def walk_forward(cfg, df, device):
    rows, n = [], len(df)
    first = n // 2
    width = (n - first) // cfg.folds
    for k in range(cfg.folds):
        split, end = first + k * width, first + (k + 1) * width
        scaler = StandardScaler().fit(df.values[:split])
        train = scaler.transform(df.values[:split])
        valid = scaler.transform(df.values[split - cfg.lookback:end])
        logger.info("fold %d: train up to %s", k, df.index[split - 1])
        _, mae = fit_fold(cfg, train, valid, device)
        naive = np.abs(valid[24:, 0] - valid[:-24, 0]).mean()
        rows.append({"model": cfg.model, "fold": k, "mae": mae * scaler.scale_[0], "naive": naive * scaler.scale_[0]})
    return rows

def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--models", nargs="+", default=["tcn", "gru"], choices=["tcn", "gru"])
    ap.add_argument("--epochs", type=int, default=TrainConfig.epochs)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s")
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    df = synth_load()
    df.to_csv("load.csv")
    df = pd.read_csv("load.csv", index_col=0, parse_dates=True)
    rows = []
    for name in args.models:
        cfg = TrainConfig(model=name, epochs=args.epochs)
        logger.info("%s", asdict(cfg))
        rows += walk_forward(cfg, df, device)
    table = pd.DataFrame(rows)
    print(table.round(3).to_string(index=False))
    print(table.groupby("model")["mae"].mean().idxmin(), "wins")

if __name__ == "__main__":
    main()
