import copy
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.amp import GradScaler, autocast
from torch.utils.data import DataLoader, TensorDataset
from tqdm import tqdm

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
AMP_DTYPE = torch.float16 if DEVICE == "cuda" else torch.bfloat16


class Block(nn.Module):
    def __init__(self, ci, co, stride=1):
        super().__init__()
        self.c1, self.b1 = nn.Conv2d(ci, co, 3, stride, 1, bias=False), nn.BatchNorm2d(co)
        self.c2, self.b2 = nn.Conv2d(co, co, 3, 1, 1, bias=False), nn.BatchNorm2d(co)
        self.skip = nn.Sequential() if stride == 1 and ci == co else nn.Conv2d(ci, co, 1, stride, bias=False)

    def forward(self, x):
        y = F.relu(self.b1(self.c1(x)))
        return F.relu(self.b2(self.c2(y)) + self.skip(x))


class TinyResNet(nn.Module):
    def __init__(self, classes=6):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, 1, 1)
        self.body = nn.Sequential(Block(8, 8), Block(8, 16, 2), Block(16, 16))
        self.head = nn.Linear(16 * 16, classes)

    def forward(self, x):
        return self.head(F.adaptive_avg_pool2d(self.body(self.stem(x)), 4).flatten(1))


def data():
    torch.manual_seed(5)
    y = torch.randint(0, 6, (576,))
    x = torch.randn(6, 3, 16, 16)[y] * 0.8 + torch.randn(576, 3, 16, 16)
    tr, va = TensorDataset(x[:480], y[:480]), TensorDataset(x[480:], y[480:])
    return DataLoader(tr, 32, shuffle=True, pin_memory=DEVICE == "cuda"), DataLoader(va, 96)


def lr_find(model, loader, start=1e-5, end=1.0, num=15, beta=0.9):
    """exponentially growing lr; returns the lr at the steepest descent divided by 3"""
    saved = copy.deepcopy(model.state_dict())
    opt = torch.optim.SGD(model.parameters(), lr=start, momentum=0.9)
    gamma = (end / start) ** (1 / (num - 1))
    avg, best, lrs, losses = 0.0, float("inf"), [], []
    it = iter(loader)
    model.train()
    for k in range(num):
        try:
            x, y = next(it)
        except StopIteration:
            it = iter(loader)
            x, y = next(it)
        opt.zero_grad()
        loss = F.cross_entropy(model(x.to(DEVICE)), y.to(DEVICE))
        avg = beta * avg + (1 - beta) * loss.item()
        smooth = avg / (1 - beta ** (k + 1))
        if k > 3 and smooth > 4 * best:
            break
        best = min(best, smooth)
        lrs.append(opt.param_groups[0]["lr"])
        losses.append(smooth)
        loss.backward()
        opt.step()
        opt.param_groups[0]["lr"] *= gamma
    model.load_state_dict(saved)
    slopes = [(losses[i + 1] - losses[i]) / (math.log(lrs[i + 1]) - math.log(lrs[i])) for i in range(len(lrs) - 1)]
    pick = lrs[slopes.index(min(slopes))]
    print("lr finder:", [f"{a:.1e}:{b:.3f}" for a, b in zip(lrs, losses)][::3], "->", f"{pick:.2e}")
    return max(pick, 1e-2)


def main():
    train_dl, val_dl = data()
    model = TinyResNet().to(DEVICE)
    max_lr = lr_find(model, train_dl)
    epochs = 2
    opt = torch.optim.SGD(model.parameters(), lr=max_lr / 25, momentum=0.9, weight_decay=5e-4)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=max_lr, total_steps=epochs * len(train_dl), pct_start=0.3)
    scaler = GradScaler(DEVICE, enabled=DEVICE == "cuda")
    for epoch in range(epochs):
        model.train()
        pbar = tqdm(train_dl, total=len(train_dl), desc=f"epoch {epoch}")
        for x, y in pbar:
            x, y = x.to(DEVICE, non_blocking=True), y.to(DEVICE, non_blocking=True)
            opt.zero_grad(set_to_none=True)
            with autocast(device_type=DEVICE, dtype=AMP_DTYPE):
                loss = F.cross_entropy(model(x), y)
            scaler.scale(loss).backward()
            scaler.unscale_(opt)
            nn.utils.clip_grad_norm_(model.parameters(), 2.0)
            old_scale = scaler.get_scale()
            scaler.step(opt)
            scaler.update()
            if scaler.get_scale() >= old_scale:
                sched.step()
            pbar.set_postfix(loss=f"{loss.item():.3f}", lr=f"{sched.get_last_lr()[0]:.4f}")
        model.eval()
        with torch.inference_mode(), autocast(device_type=DEVICE, dtype=AMP_DTYPE):
            acc = torch.cat([(model(x.to(DEVICE)).argmax(1) == y.to(DEVICE)).float() for x, y in val_dl]).mean().item()
        print(f"val acc {acc:.3f}")


if __name__ == "__main__":
    main()
