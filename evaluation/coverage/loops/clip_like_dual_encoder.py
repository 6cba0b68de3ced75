import json
import logging
import math
import os
from argparse import ArgumentParser

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from einops import rearrange
from torch.utils.data import DataLoader, Dataset

logging.basicConfig(level=logging.INFO, format="%(asctime)s,%(msecs)03d | %(levelname)s | %(message)s", datefmt="%H:%M:%S")

SHAPES, COLORS, SIZES = ["box", "cross", "stripe"], ["red", "green", "blue", "white"], ["small", "big"]
WORDS = ["<pad>", "<eot>", "a", "photo", "of", "the"] + SIZES + COLORS + SHAPES
STOI = {w: i for i, w in enumerate(WORDS)}
CONTEXT = 9

def tokenize(texts):
    out = torch.zeros(len(texts), CONTEXT, dtype=torch.long)
    for i, t in enumerate(texts):
        ids = [STOI[w] for w in t.split()] + [STOI["<eot>"]]
        out[i, : len(ids)] = torch.tensor(ids)
    return out

def build_annotations(path, n=240, seed=0):
    rng = np.random.default_rng(seed)
    with open(path, "w") as f:
        for i in range(n):
            s, c, z = rng.choice(SHAPES), rng.choice(COLORS), rng.choice(SIZES)
            f.write(json.dumps({"id": i, "caption": f"a photo of the {z} {c} {s}"}) + "\n")

class Pairs(Dataset):
    def __init__(self, path):
        self.rows = [json.loads(line) for line in open(path)]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        size, color, shape = self.rows[i]["caption"].split()[-3:]
        rgb = {"red": (1, 0, 0), "green": (0, 1, 0), "blue": (0, 0, 1), "white": (1, 1, 1)}[color]
        r = 2 if size == "small" else 5
        m = torch.zeros(16, 16)
        if shape == "box":
            m[8 - r:8 + r, 8 - r:8 + r] = 1
        elif shape == "cross":
            m[7:9, 8 - r:8 + r] = 1
            m[8 - r:8 + r, 7:9] = 1
        else:
            m[8 - r:8 + r:2] = 1
        img = m[None] * torch.tensor(rgb).view(3, 1, 1) + 0.1 * torch.randn(3, 16, 16)
        return img, self.rows[i]["caption"]

def collate(rows):
    imgs, caps = zip(*rows)
    return torch.stack(imgs), tokenize(caps)

class CLIP(nn.Module):
    def __init__(self, width=32, embed=16):
        super().__init__()
        self.patch = nn.Linear(3 * 4 * 4, width)
        self.cls = nn.Parameter(torch.randn(1, 1, width) * 0.02)
        self.vpos = nn.Parameter(torch.randn(1, 17, width) * 0.02)
        enc = lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(width, 4, 64, 0.0, "gelu", batch_first=True, norm_first=True), 1, enable_nested_tensor=False)
        self.visual, self.text = enc(), enc()
        self.tok = nn.Embedding(len(WORDS), width)
        self.tpos = nn.Parameter(torch.randn(1, CONTEXT, width) * 0.02)
        self.vproj = nn.Parameter(width ** -0.5 * torch.randn(width, embed))
        self.tproj = nn.Parameter(width ** -0.5 * torch.randn(width, embed))
        self.logit_scale = nn.Parameter(torch.ones([]) * np.log(1 / 0.07))

    def encode_image(self, x):
        x = self.patch(rearrange(x, "b c (h p) (w q) -> b (h w) (p q c)", p=4, q=4))
        x = torch.cat([self.cls.expand(x.size(0), -1, -1), x], 1) + self.vpos
        return F.normalize(self.visual(x)[:, 0] @ self.vproj, dim=-1)

    def encode_text(self, ids):
        x = self.text(self.tok(ids) + self.tpos, src_key_padding_mask=ids == 0)
        eot = (ids == STOI["<eot>"]).int().argmax(dim=-1)
        return F.normalize(x[torch.arange(x.size(0)), eot] @ self.tproj, dim=-1)

    def forward(self, img, ids):
        return self.encode_image(img), self.encode_text(ids), self.logit_scale.exp()

def main():
    p = ArgumentParser()
    p.add_argument("--epochs", type=int, default=3)
    p.add_argument("--batch-size", type=int, default=24)
    p.add_argument("--lr", type=float, default=2e-3)
    args = p.parse_args()
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if not os.path.exists("annotations.jsonl"):
        build_annotations("annotations.jsonl")
    loader = DataLoader(Pairs("annotations.jsonl"), batch_size=args.batch_size, shuffle=True, collate_fn=collate, drop_last=True)
    model = CLIP().to(device)
    no_decay = lambda n, q: q.ndim < 2 or "ln" in n or "logit_scale" in n
    named = list(model.named_parameters())
    opt = torch.optim.AdamW([{"params": [q for n, q in named if no_decay(n, q)], "weight_decay": 0.0},
                             {"params": [q for n, q in named if not no_decay(n, q)], "weight_decay": 0.2}],
                            lr=args.lr, betas=(0.9, 0.98), eps=1e-6)
    for epoch in range(args.epochs):
        for i, (img, ids) in enumerate(loader):
            img, ids = img.to(device), ids.to(device)
            fi, ft, scale = model(img, ids)
            logits = scale * fi @ ft.t()
            labels = torch.arange(len(logits), device=device)
            loss = (F.cross_entropy(logits, labels) + F.cross_entropy(logits.t(), labels)) / 2
            opt.zero_grad()
            loss.backward()
            opt.step()
            with torch.no_grad():
                model.logit_scale.clamp_(0, math.log(100))
            if i % 5 == 0:
                logging.info(f"epoch {epoch} [{i}/{len(loader)}] loss {loss.item():.3f} scale {model.logit_scale.exp().item():.2f}")
    # zero-shot colour classification
    model.eval()
    with torch.no_grad():
        img, ids = next(iter(loader))
        prompts = model.encode_text(tokenize([f"a photo of the big {c} box" for c in COLORS]).to(device))
        pred = (model.encode_image(img.to(device)) @ prompts.t()).argmax(1).cpu()
        truth = torch.tensor([[STOI[c] in row.tolist() for c in COLORS].index(True) for row in ids])
    logging.info(f"zero-shot colour accuracy {(pred == truth).float().mean():.2f}")

if __name__ == "__main__":
    main()
