import argparse
import copy

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.optim.lr_scheduler import CosineAnnealingLR
from torch.optim.swa_utils import SWALR, AveragedModel, get_ema_multi_avg_fn, update_bn
from torch.utils.data import DataLoader, TensorDataset


def get_loaders(bs):
    g = torch.Generator().manual_seed(11)
    n = 600
    y = torch.randint(0, 4, (n,), generator=g)
    base = torch.randn(4, 1, 12, 12, generator=g)
    x = base[y] + 1.2 * torch.randn(n, 1, 12, 12, generator=g)
    return (
        DataLoader(TensorDataset(x[:480], y[:480]), batch_size=bs, shuffle=True, drop_last=True),
        DataLoader(TensorDataset(x[480:], y[480:]), batch_size=60),
    )


def conv_bn(i, o):
    return nn.Sequential(nn.Conv2d(i, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU(inplace=True))


def build():
    return nn.Sequential(
        conv_bn(1, 12), nn.MaxPool2d(2), conv_bn(12, 24), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(96, 4)
    )


@torch.no_grad()
def accuracy(model, loader, device):
    was = model.training
    model.eval()
    hit = n = 0
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        hit += (model(x).argmax(1) == y).sum().item()
        n += len(y)
    model.train(was)
    return hit / n


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=6)
    ap.add_argument("--swa-start", type=int, default=3)
    ap.add_argument("--ema-decay", type=float, default=0.95)
    args = ap.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    train_loader, val_loader = get_loaders(48)

    model = build().to(device)
    ema = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(args.ema_decay), use_buffers=True)
    swa = AveragedModel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4, nesterov=True)
    scheduler = CosineAnnealingLR(optimizer, T_max=args.swa_start)
    swa_scheduler = SWALR(optimizer, anneal_strategy="linear", anneal_epochs=2, swa_lr=0.02)

    best, best_state = 0.0, None
    for epoch in range(args.epochs):
        tot = 0.0
        for x, y in train_loader:
            x, y = x.to(device), y.to(device)
            optimizer.zero_grad(set_to_none=True)
            loss = F.cross_entropy(model(x), y, label_smoothing=0.05)
            loss.backward()
            optimizer.step()
            ema.update_parameters(model)
            tot += loss.item() * x.size(0)
        if epoch >= args.swa_start:
            swa.update_parameters(model)
            swa_scheduler.step()
        else:
            scheduler.step()
        a, e = accuracy(model, val_loader, device), accuracy(ema, val_loader, device)
        print(
            f"epoch {epoch} lr {optimizer.param_groups[0]['lr']:.4f} loss {tot / 480:.4f} acc {a:.3f} ema acc {e:.3f}"
        )
        if e > best:
            best, best_state = e, copy.deepcopy(ema.module.state_dict())

    update_bn(train_loader, swa, device=device)
    print(f"swa acc {accuracy(swa, val_loader, device):.3f} (averaged {swa.n_averaged.item()} models)")
    if best_state is not None:
        torch.save(best_state, "ema_best.pt")
        print("best ema", best)


main()
