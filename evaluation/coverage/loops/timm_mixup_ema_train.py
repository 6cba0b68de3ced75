"""Image classification with a small timm model: mixup/cutmix, soft targets, EMA weights, cosine schedule by epoch."""
import argparse
import os
import time
from collections import OrderedDict

import numpy as np
import timm
import torch
import torch.nn as nn
from PIL import Image
from timm.data import Mixup, create_transform, resolve_data_config
from timm.loss import SoftTargetCrossEntropy
from timm.optim import create_optimizer_v2
from timm.scheduler import create_scheduler_v2
from timm.utils import AverageMeter, ModelEmaV2, accuracy
from torch.utils.data import DataLoader, Dataset

parser = argparse.ArgumentParser(description="tiny timm training")
parser.add_argument("--model", default="resnet10t")
parser.add_argument("--img-size", type=int, default=32)
parser.add_argument("-b", "--batch-size", type=int, default=12)
parser.add_argument("--lr", type=float, default=2e-3)
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--mixup", type=float, default=0.4)
parser.add_argument("--output", default="timm_out")

class FolderImages(Dataset):
    def __init__(self, root, n, classes, transform, seed):
        self.transform, self.items = transform, []
        rng = np.random.default_rng(seed)
        for i in range(n):
            c = int(rng.integers(classes))
            os.makedirs(f"{root}/{c}", exist_ok=True)
            arr = rng.integers(0, 90, (40, 40, 3), dtype=np.uint8)
            arr[5 * c: 5 * c + 12, :, c % 3] += 140
            path = f"{root}/{c}/{i}.png"
            Image.fromarray(arr).save(path)
            self.items.append((path, c))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        path, c = self.items[i]
        return self.transform(Image.open(path).convert("RGB")), c

def train_epoch(epoch, model, loader, optimizer, loss_fn, mixup_fn, scheduler, ema, device):
    losses, num_updates = AverageMeter(), epoch * len(loader)
    model.train()
    for i, (x, y) in enumerate(loader):
        x, y = x.to(device), y.to(device)
        x, y = mixup_fn(x, y)
        loss = loss_fn(model(x), y)
        losses.update(loss.item(), x.size(0))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 2.0)
        optimizer.step()
        ema.update(model)
        num_updates += 1
        scheduler.step_update(num_updates=num_updates, metric=losses.avg)
        if i % 2 == 0 or i == len(loader) - 1:
            lr = sum(g["lr"] for g in optimizer.param_groups) / len(optimizer.param_groups)
            print(f"Train: {epoch} [{i:>3d}/{len(loader)}]  Loss: {losses.val:.3g} ({losses.avg:.3g})  LR: {lr:.2e}")

@torch.no_grad()
def validate(model, loader, loss_fn, device, suffix=""):
    losses, top1 = AverageMeter(), AverageMeter()
    model.eval()
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        out = model(x)
        losses.update(loss_fn(out, y).item(), x.size(0))
        top1.update(accuracy(out, y, topk=(1,))[0].item(), x.size(0))
    print(f"Test{suffix}: loss {losses.avg:.4f} acc@1 {top1.avg:.2f}")
    return OrderedDict(loss=losses.avg, top1=top1.avg)

def main():
    args = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    timm.utils.random_seed(42)
    model = timm.create_model(args.model, pretrained=False, num_classes=4, drop_path_rate=0.05).to(device)
    cfg = resolve_data_config({"input_size": (3, args.img_size, args.img_size)}, model=model)
    train_tf = create_transform(**cfg, is_training=True, auto_augment="rand-m5-n1", re_prob=0.1)
    eval_tf = create_transform(**cfg, is_training=False)
    train_loader = DataLoader(FolderImages("data/train", 60, 4, train_tf, 0), args.batch_size, shuffle=True, drop_last=True)
    val_loader = DataLoader(FolderImages("data/val", 24, 4, eval_tf, 1), 2 * args.batch_size)
    optimizer = create_optimizer_v2(model, opt="adamw", lr=args.lr, weight_decay=0.05)
    scheduler, num_epochs = create_scheduler_v2(optimizer, sched="cosine", num_epochs=args.epochs, warmup_epochs=1,
                                                warmup_lr=1e-5, updates_per_epoch=len(train_loader))
    mixup_fn = Mixup(args.mixup, 1.0, label_smoothing=0.1, num_classes=4)
    ema = ModelEmaV2(model, decay=0.9)
    train_loss = SoftTargetCrossEntropy()
    os.makedirs(args.output, exist_ok=True)
    best, start = None, time.time()
    for epoch in range(num_epochs):
        train_epoch(epoch, model, train_loader, optimizer, train_loss, mixup_fn, scheduler, ema, device)
        metrics = validate(model, val_loader, nn.CrossEntropyLoss(), device)
        ema_metrics = validate(ema.module, val_loader, nn.CrossEntropyLoss(), device, " (EMA)")
        scheduler.step(epoch + 1, ema_metrics["top1"])
        top = max(metrics["top1"], ema_metrics["top1"])
        if best is None or top > best:
            best = top
            torch.save({"epoch": epoch, "arch": args.model, "state_dict": model.state_dict(),
                        "state_dict_ema": ema.module.state_dict(), "args": vars(args)}, f"{args.output}/model_best.pth.tar")
    print(f"*** Best metric: {best} in {time.time() - start:.1f}s")

if __name__ == "__main__":
    main()
