import math
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class MoEConfig:
    vocab_size: int = 64
    dim: int = 32
    ffn: int = 64
    heads: int = 2
    layers: int = 2
    experts: int = 4
    top_k: int = 2
    aux_coef: float = 0.01
    seq: int = 24


class Expert(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.w1, self.w3, self.w2 = (
            nn.Linear(c.dim, c.ffn, bias=False),
            nn.Linear(c.dim, c.ffn, bias=False),
            nn.Linear(c.ffn, c.dim, bias=False),
        )

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class SparseMoE(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        self.gate = nn.Linear(c.dim, c.experts, bias=False)
        self.experts = nn.ModuleList([Expert(c) for _ in range(c.experts)])

    def forward(self, x):
        B, T, D = x.shape
        flat = x.reshape(-1, D)
        probs = F.softmax(self.gate(flat), dim=-1, dtype=torch.float)
        weights, chosen = torch.topk(probs, self.c.top_k, dim=-1)
        weights = (weights / weights.sum(-1, keepdim=True)).to(flat.dtype)

        out = torch.zeros_like(flat)
        counts = []
        for e, expert in enumerate(self.experts):
            hit = chosen == e  # bool (tokens, k)
            tok, slot = torch.nonzero(hit, as_tuple=True)
            counts.append(tok.numel())
            if tok.numel() == 0:
                continue
            y = expert(flat[tok]) * weights[tok, slot].unsqueeze(-1)
            out.index_add_(0, tok, y)
        # switch-style balancing
        frac = F.one_hot(chosen, self.c.experts).float().sum(1).mean(0)
        aux = self.c.experts * (frac * probs.mean(0)).sum()
        return out.view(B, T, D), aux, counts


class Layer(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.n1, self.n2 = nn.RMSNorm(c.dim), nn.RMSNorm(c.dim)
        self.attn = nn.MultiheadAttention(c.dim, c.heads, batch_first=True, bias=False)
        self.moe = SparseMoE(c)

    def forward(self, x, mask):
        h = self.n1(x)
        x = x + self.attn(h, h, h, attn_mask=mask, need_weights=False)[0]
        y, aux, counts = self.moe(self.n2(x))
        return x + y, aux, counts


class MoELM(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        self.emb, self.pos = nn.Embedding(c.vocab_size, c.dim), nn.Embedding(c.seq, c.dim)
        self.layers = nn.ModuleList([Layer(c) for _ in range(c.layers)])
        self.norm, self.head = nn.RMSNorm(c.dim), nn.Linear(c.dim, c.vocab_size, bias=False)
        self.register_buffer("mask", torch.triu(torch.ones(c.seq, c.seq, dtype=torch.bool), 1), persistent=False)

    def forward(self, ids):
        t = ids.shape[1]
        x = self.emb(ids) + self.pos.weight[:t]
        aux_total, loads = 0.0, []
        for l in self.layers:
            x, aux, counts = l(x, self.mask[:t, :t])
            aux_total = aux_total + aux
            loads.append(counts)
        return self.head(self.norm(x)), aux_total / len(self.layers), loads


def batch(c, n, device):
    start = torch.randint(0, c.vocab_size, (n, 1))
    step = torch.randint(1, 5, (n, 1))
    ids = (start + step * torch.arange(c.seq + 1)) % c.vocab_size
    return ids[:, :-1].to(device), ids[:, 1:].to(device)


if __name__ == "__main__":
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    cfg = MoEConfig()
    model = MoELM(cfg).to(device)
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
    steps = 30
    sched = torch.optim.lr_scheduler.LambdaLR(
        opt, lambda s: min(1, (s + 1) / 5) * 0.5 * (1 + math.cos(math.pi * s / steps))
    )
    for step in range(steps):
        x, y = batch(cfg, 16, device)
        logits, aux, loads = model(x)
        ce = F.cross_entropy(logits.flatten(0, 1), y.flatten())
        (ce + cfg.aux_coef * aux).backward()
        gn = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        sched.step()
        opt.zero_grad()
        if step % 5 == 0 or step == steps - 1:
            print(f"{step:3d} ce {ce.item():.4f} aux {aux.item():.3f} gnorm {gn.item():.2f} load {loads[0]}")
