"""Tiny DETR-ish detector: conv backbone, transformer decoder with queries, Hungarian matching."""

import torch
import torch.nn.functional as F
from scipy.optimize import linear_sum_assignment
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Shapes(Dataset):
    def __init__(self, n, size=32, seed=0):
        self.n, self.size, self.seed = n, size, seed

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(self.seed * 10000 + i)
        img = torch.randn(3, self.size, self.size, generator=g) * 0.05
        k = int(torch.randint(0, 4, (1,), generator=g))  # may be an empty image
        boxes, labels = [], []
        for _ in range(k):
            w, h = (torch.randint(5, 14, (2,), generator=g)).tolist()
            x, y = (
                int(torch.randint(0, self.size - w, (1,), generator=g)),
                int(torch.randint(0, self.size - h, (1,), generator=g)),
            )
            c = int(torch.randint(0, 3, (1,), generator=g))
            img[c, y : y + h, x : x + w] += 1.0
            boxes.append([(x + w / 2) / self.size, (y + h / 2) / self.size, w / self.size, h / self.size])
            labels.append(c)
        return img, {"boxes": torch.tensor(boxes).reshape(-1, 4), "labels": torch.tensor(labels, dtype=torch.long)}


def to_xyxy(b):
    c, s = b[..., :2], b[..., 2:]
    return torch.cat([c - s / 2, c + s / 2], -1)


def giou(a, b):
    a, b = to_xyxy(a), to_xyxy(b)
    area = lambda t: (t[:, 2:] - t[:, :2]).clamp(min=0).prod(1)
    lt, rb = torch.max(a[:, None, :2], b[None, :, :2]), torch.min(a[:, None, 2:], b[None, :, 2:])
    inter = (rb - lt).clamp(min=0).prod(2)
    union = area(a)[:, None] + area(b)[None] - inter
    hull = (torch.max(a[:, None, 2:], b[None, :, 2:]) - torch.min(a[:, None, :2], b[None, :, :2])).clamp(min=0).prod(2)
    return inter / (union + 1e-6) - (hull - union) / (hull + 1e-6)


class MiniDETR(nn.Module):
    def __init__(self, classes=3, queries=6, d=32):
        super().__init__()
        self.backbone = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, d, 3, 2, 1), nn.ReLU())
        self.transformer = nn.Transformer(d, 2, 1, 2, 64, dropout=0.0, batch_first=True)
        self.pos = nn.Parameter(torch.rand(64, d))
        self.query = nn.Parameter(torch.rand(queries, d))
        self.cls, self.box = nn.Linear(d, classes + 1), nn.Sequential(nn.Linear(d, d), nn.ReLU(), nn.Linear(d, 4))

    def forward(self, x):
        f = self.backbone(x).flatten(2).transpose(1, 2) + self.pos
        h = self.transformer(f, self.query.unsqueeze(0).expand(x.size(0), -1, -1))
        return {"logits": self.cls(h), "boxes": self.box(h).sigmoid()}


@torch.no_grad()
def match(out, targets):
    res = []
    for b, t in enumerate(targets):
        cost = (
            -out["logits"][b].softmax(-1)[:, t["labels"]]
            + 5 * torch.cdist(out["boxes"][b], t["boxes"], p=1)
            - 2 * giou(out["boxes"][b], t["boxes"])
        )
        i, j = linear_sum_assignment(cost.cpu().numpy())
        res.append((torch.as_tensor(i), torch.as_tensor(j)))
    return res


def set_loss(out, targets, no_obj_weight=0.2):
    idx = match(out, targets)
    B, Q, C = out["logits"].shape
    tgt = torch.full((B, Q), C - 1, dtype=torch.long, device=out["logits"].device)
    bi = torch.cat([torch.full_like(i, b) for b, (i, _) in enumerate(idx)])
    qi = torch.cat([i for i, _ in idx])
    tgt[bi, qi] = torch.cat([t["labels"][j] for t, (_, j) in zip(targets, idx)])
    w = torch.ones(C, device=tgt.device)
    w[-1] = no_obj_weight
    ce = F.cross_entropy(out["logits"].transpose(1, 2), tgt, w)
    n = max(len(bi), 1)
    pb, tb = out["boxes"][bi, qi], torch.cat([t["boxes"][j] for t, (_, j) in zip(targets, idx)])
    l1 = F.l1_loss(pb, tb, reduction="sum") / n
    gi = (1 - torch.diag(giou(pb, tb))).sum() / n
    return ce + 5 * l1 + 2 * gi, {"ce": ce.item(), "l1": l1.item(), "giou": gi.item()}


def main():
    lr, epochs = 1e-3, 3
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    col = lambda b: (torch.stack([x for x, _ in b]), [t for _, t in b])
    train_dl = DataLoader(Shapes(96), batch_size=12, shuffle=True, collate_fn=col)
    val_dl = DataLoader(Shapes(24, seed=1), batch_size=12, collate_fn=col)
    model = MiniDETR().to(device)
    opt = torch.optim.AdamW(
        [
            {"params": [p for n, p in model.named_parameters() if "backbone" not in n]},
            {"params": model.backbone.parameters(), "lr": lr * 0.1},
        ],
        lr=lr,
        weight_decay=1e-4,
    )
    best = float("inf")
    for epoch in range(epochs):
        model.train()
        for step, (x, t) in enumerate(train_dl):
            t = [{k: v.to(device) for k, v in d.items()} for d in t]
            loss, parts = set_loss(model(x.to(device)), t)
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            opt.step()
            if step % 4 == 0:
                print(
                    f"ep {epoch} it {step} loss {loss.item():.3f} " + " ".join(f"{k} {v:.3f}" for k, v in parts.items())
                )
        model.eval()
        with torch.no_grad():
            val = sum(
                set_loss(model(x.to(device)), [{k: v.to(device) for k, v in d.items()} for d in t])[0].item()
                for x, t in val_dl
            ) / len(val_dl)
        print(f"ep {epoch} val {val:.3f}")
        if val < best:
            best = val
            torch.save(model.state_dict(), "detr_best.pth")


if __name__ == "__main__":
    main()
