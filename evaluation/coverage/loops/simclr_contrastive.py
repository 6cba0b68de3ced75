import argparse
import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.linear_model import LogisticRegression
from torch.utils.data import DataLoader, Dataset

class TwoViews(Dataset):
    def __init__(self, x):
        self.x = x

    def __len__(self):
        return len(self.x)

    def augment(self, img):
        # random crop with padding, flip, brightness, cutout
        padded = F.pad(img, (2, 2, 2, 2))
        i, j = np.random.randint(0, 5, size=2)
        img = padded[:, i:i + 16, j:j + 16]
        if np.random.rand() < 0.5:
            img = torch.flip(img, dims=[2])
        img = img * np.random.uniform(0.7, 1.3) + np.random.uniform(-0.1, 0.1)
        r, c = np.random.randint(0, 12, size=2)
        img = img.clone()
        img[:, r:r + 4, c:c + 4] = 0
        return img

    def __getitem__(self, idx):
        return self.augment(self.x[idx]), self.augment(self.x[idx])

class Encoder(nn.Module):
    def __init__(self, feat=32, proj=16):
        super().__init__()
        self.backbone = nn.Sequential(
            nn.Conv2d(3, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.ReLU(),
            nn.Conv2d(16, feat, 3, 2, 1), nn.BatchNorm2d(feat), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.projector = nn.Sequential(nn.Linear(feat, feat), nn.ReLU(), nn.Linear(feat, proj))

    def forward(self, x):
        h = self.backbone(x)
        return h, self.projector(h)

def nt_xent(z1, z2, temperature):
    n = z1.size(0)
    z = F.normalize(torch.cat([z1, z2]), dim=1)
    sim = z @ z.T / temperature
    sim.masked_fill_(torch.eye(2 * n, dtype=torch.bool, device=z.device), float("-inf"))
    targets = torch.cat([torch.arange(n, 2 * n), torch.arange(n)]).to(z.device)
    top1 = (sim.detach().argmax(1) == targets).float().mean()
    return F.cross_entropy(sim, targets), top1

def adjust_lr(optimizer, step, total, base_lr, warmup):
    if step < warmup:
        lr = base_lr * (step + 1) / warmup
    else:
        lr = 0.5 * base_lr * (1 + math.cos(math.pi * (step - warmup) / (total - warmup)))
    for group in optimizer.param_groups:
        group["lr"] = lr
    return lr

def linear_probe(model, x, y, device):
    model.eval()
    with torch.no_grad():
        feats = torch.cat([model(c.to(device))[0].cpu() for c in x.split(64)]).numpy()
    n = len(feats) // 2
    clf = LogisticRegression(max_iter=300).fit(feats[:n], y[:n])
    model.train()
    return clf.score(feats[n:], y[n:])

def main(args):
    torch.manual_seed(args.seed)
    np.random.seed(args.seed)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    y = torch.randint(0, 5, (256,))
    textures = torch.randn(5, 3, 16, 16)
    x = textures[y] + 0.8 * torch.randn(256, 3, 16, 16)
    loader = DataLoader(TwoViews(x), batch_size=args.batch_size, shuffle=True, drop_last=True)
    model = Encoder().to(device)
    opt = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, weight_decay=1e-4)
    total = args.epochs * len(loader)
    step = 0
    print("probe accuracy at init: %.3f" % linear_probe(model, x, y.numpy(), device))
    for epoch in range(args.epochs):
        meter = {"loss": 0.0, "top1": 0.0}
        for v1, v2 in loader:
            lr = adjust_lr(opt, step, total, args.lr, warmup=4)
            _, z1 = model(v1.to(device))
            _, z2 = model(v2.to(device))
            loss, top1 = nt_xent(z1, z2, args.temperature)
            opt.zero_grad()
            loss.backward()
            opt.step()
            meter["loss"] += loss.item() / len(loader)
            meter["top1"] += top1.item() / len(loader)
            step += 1
        print("epoch %d  nt-xent %.3f  contrastive top1 %.2f  lr %.4f" % (epoch, meter["loss"], meter["top1"], lr))
    print("probe accuracy: %.3f" % linear_probe(model, x, y.numpy(), device))
    torch.save({"backbone": model.backbone.state_dict(), "args": vars(args)}, "simclr.pth")

if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", default=3, type=int)
    ap.add_argument("--batch_size", default=32, type=int)
    ap.add_argument("--lr", default=0.1, type=float)
    ap.add_argument("--temperature", default=0.2, type=float)
    ap.add_argument("--seed", default=0, type=int)
    main(ap.parse_args())
