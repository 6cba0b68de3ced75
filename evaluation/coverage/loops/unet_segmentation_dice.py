import argparse
import glob
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset
from tqdm import tqdm

def write_dataset(folder, n, size=32):
    os.makedirs(folder, exist_ok=True)
    rng = np.random.default_rng(len(folder))
    yy, xx = np.mgrid[0:size, 0:size]
    for i in range(n):
        mask = np.zeros((size, size), np.uint8)
        for _ in range(rng.integers(1, 4)):
            cy, cx, r = rng.integers(5, size - 5), rng.integers(5, size - 5), rng.integers(2, 6)
            mask[(yy - cy) ** 2 + (xx - cx) ** 2 <= r ** 2] = 1
        img = 0.6 * mask + 0.25 * rng.standard_normal((size, size))
        np.savez(os.path.join(folder, f"{i}.npz"), img=img.astype(np.float32), mask=mask)

class CellDataset(Dataset):
    def __init__(self, folder, augment=False):
        self.paths = sorted(glob.glob(f"{folder}/*.npz"))
        if not self.paths:
            raise FileNotFoundError(folder)
        self.augment = augment

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        with np.load(self.paths[i]) as f:
            img, mask = f["img"], f["mask"]
        if self.augment and np.random.rand() > 0.5:
            img, mask = img[:, ::-1].copy(), mask[:, ::-1].copy()
        return torch.from_numpy(img)[None], torch.from_numpy(mask).float()[None]

def double_conv(i, o):
    return nn.Sequential(nn.Conv2d(i, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU(inplace=True),
                         nn.Conv2d(o, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU(inplace=True))

class UNet(nn.Module):
    def __init__(self, chans=(8, 16, 32)):
        super().__init__()
        self.downs, self.ups, self.up_convs = nn.ModuleList(), nn.ModuleList(), nn.ModuleList()
        c = 1
        for ch in chans[:-1]:
            self.downs.append(double_conv(c, ch))
            c = ch
        self.mid = double_conv(c, chans[-1])
        for ch in reversed(chans[:-1]):
            self.ups.append(nn.ConvTranspose2d(2 * ch, ch, 2, stride=2))
            self.up_convs.append(double_conv(2 * ch, ch))
        self.out = nn.Conv2d(chans[0], 1, 1)

    def forward(self, x):
        skips = []
        for d in self.downs:
            x = d(x)
            skips.append(x)
            x = F.max_pool2d(x, 2)
        x = self.mid(x)
        for up, conv, s in zip(self.ups, self.up_convs, reversed(skips)):
            x = up(x)
            if x.shape != s.shape:
                x = F.interpolate(x, size=s.shape[2:])
            x = conv(torch.cat([s, x], dim=1))
        return self.out(x)

def dice_loss(logits, target, eps=1.0):
    p = torch.sigmoid(logits).flatten(1)
    t = target.flatten(1)
    inter = (p * t).sum(1)
    return 1 - ((2 * inter + eps) / (p.sum(1) + t.sum(1) + eps)).mean()

@torch.no_grad()
def iou_score(logits, target, thr=0.5):
    pred = (torch.sigmoid(logits) > thr)
    target = target.bool()
    inter = (pred & target).sum(dim=(1, 2, 3)).float()
    union = (pred | target).sum(dim=(1, 2, 3)).float()
    return torch.where(union > 0, inter / union.clamp(min=1), torch.ones_like(union)).mean().item()

def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=4)
    ap.add_argument("--bs", type=int, default=8)
    ap.add_argument("--lr", type=float, default=5e-3)
    ap.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    a = ap.parse_args()
    torch.manual_seed(0)
    np.random.seed(0)
    for split, n in (("seg/train", 40), ("seg/val", 12)):
        if not os.path.isdir(split):
            write_dataset(split, n)
    train_dl = DataLoader(CellDataset("seg/train", augment=True), batch_size=a.bs, shuffle=True, num_workers=0, pin_memory=a.device == "cuda")
    val_dl = DataLoader(CellDataset("seg/val"), batch_size=a.bs)
    net = UNet().to(a.device)
    opt = torch.optim.RMSprop(net.parameters(), lr=a.lr, momentum=0.5)
    sched = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, "max", patience=1)
    bce = nn.BCEWithLogitsLoss(pos_weight=torch.tensor(2.0, device=a.device))
    best_iou = -1
    for epoch in range(a.epochs):
        net.train()
        total = 0
        with tqdm(total=len(train_dl.dataset), desc=f"Epoch {epoch + 1}/{a.epochs}", unit="img") as pbar:
            for img, mask in train_dl:
                img, mask = img.to(a.device, non_blocking=True), mask.to(a.device, non_blocking=True)
                logits = net(img)
                loss = bce(logits, mask) + dice_loss(logits, mask)
                opt.zero_grad(set_to_none=True)
                loss.backward()
                opt.step()
                total += loss.item()
                pbar.update(img.shape[0])
                pbar.set_postfix(**{"loss (batch)": loss.item()})
        net.eval()
        ious = []
        for img, mask in val_dl:
            with torch.no_grad():
                ious.append(iou_score(net(img.to(a.device)), mask.to(a.device)))
        val_iou = float(np.mean(ious))
        sched.step(val_iou)
        tqdm.write(f"train loss {total / len(train_dl):.4f}  val IoU {val_iou:.4f}  lr {opt.param_groups[0]['lr']:g}")
        if val_iou > best_iou:
            best_iou = val_iou
            torch.save(net.state_dict(), f"unet_e{epoch + 1}.pth")
    print("best IoU", best_iou)

if __name__ == "__main__":
    main()
