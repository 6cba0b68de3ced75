# classifier with resume; a checkpoint is written at step 0 and read back, as after a restart
import argparse
import os
import time

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", default=4, type=int)
parser.add_argument("--resume", default="auto", type=str, help="path of a checkpoint, or 'auto'")
parser.add_argument("--save-dir", default="ckpts")
parser.add_argument("--lr", default=0.05, type=float)


class Rings(Dataset):
    def __init__(self, path):
        z = np.load(path)
        self.x, self.y = torch.from_numpy(z["x"]).float(), torch.from_numpy(z["y"]).long()

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return self.x[i], self.y[i]


def prepare(path, n, seed):
    rs = np.random.RandomState(seed)
    y = rs.randint(0, 3, n)
    r, a = y + 1 + 0.2 * rs.randn(n), rs.rand(n) * 2 * np.pi
    np.savez(path, x=np.stack([r * np.cos(a), r * np.sin(a)], 1), y=y)


class AverageMeter:
    def __init__(self):
        self.sum, self.count = 0.0, 0

    def update(self, v, n=1):
        self.sum += v * n
        self.count += n

    avg = property(lambda self: self.sum / max(self.count, 1))


def save(path, model, optimizer, scheduler, epoch, best):
    torch.save(
        {
            "epoch": epoch,
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "scheduler": scheduler.state_dict(),
            "best_acc": best,
            "rng": torch.get_rng_state(),
        },
        path,
    )


def load(path, model, optimizer, scheduler, device):
    ck = torch.load(path, map_location=device, weights_only=False)
    model.load_state_dict(ck["model"])
    optimizer.load_state_dict(ck["optimizer"])
    scheduler.load_state_dict(ck["scheduler"])
    torch.set_rng_state(ck["rng"].cpu())
    print(f"=> loaded checkpoint '{path}' (epoch {ck['epoch']})")
    return ck["epoch"], ck["best_acc"]


def validate(model, loader, criterion, device, classes=3):
    model.eval()
    losses, cm = AverageMeter(), np.zeros((classes, classes), dtype=int)
    with torch.no_grad():
        for x, y in loader:
            out = model(x.to(device))
            losses.update(criterion(out, y.to(device)).item(), x.size(0))
            np.add.at(cm, (y.numpy(), out.argmax(dim=1).cpu().numpy()), 1)
    acc = np.trace(cm) / cm.sum()
    print(f" * loss {losses.avg:.4f} acc {acc * 100:.2f}")
    print(cm)
    return acc


def main():
    args = parser.parse_args()
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    os.makedirs(args.save_dir, exist_ok=True)
    prepare("train.npz", 480, 0)
    prepare("val.npz", 120, 1)
    train_dl = DataLoader(Rings("train.npz"), batch_size=32, shuffle=True)
    val_dl = DataLoader(Rings("val.npz"), batch_size=60)

    model = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 3)).to(device)
    criterion = nn.CrossEntropyLoss().to(device)
    optimizer = torch.optim.SGD(model.parameters(), args.lr, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)

    last = os.path.join(args.save_dir, "last.pth")
    if not os.path.exists(last):
        save(last, model, optimizer, scheduler, 0, 0.0)
    start_epoch, best_acc = load(last if args.resume == "auto" else args.resume, model, optimizer, scheduler, device)

    validate(model, val_dl, criterion, device)  # sanity check before training
    for epoch in range(start_epoch, args.epochs):
        model.train()
        losses, accs, t0 = AverageMeter(), AverageMeter(), time.time()
        for i, (x, y) in enumerate(train_dl):
            x, y = x.to(device), y.to(device)
            out = model(x)
            loss = criterion(out, y)
            losses.update(loss.item(), x.size(0))
            accs.update((out.argmax(1) == y).float().mean().item(), x.size(0))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if i % 5 == 0:
                print(
                    f"Epoch: [{epoch}][{i}/{len(train_dl)}]  loss {losses.avg:.4f}  acc {accs.avg:.3f}  time {time.time() - t0:.2f}"
                )
        scheduler.step()
        acc = validate(model, val_dl, criterion, device)
        if acc > best_acc:
            best_acc = acc
            torch.save(model.state_dict(), os.path.join(args.save_dir, "best.pth"))
        save(last, model, optimizer, scheduler, epoch + 1, best_acc)
    print("best accuracy", float(best_acc))


if __name__ == "__main__":
    main()
