"""Graph attention network in plain PyTorch (sparse, edge list), karate-club-sized graph."""
from __future__ import annotations

import logging
import sys

import torch
from torch import Tensor, nn

logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="%(levelname)s | %(message)s")
log = logging.getLogger("gat")


def scatter_softmax(scores: Tensor, index: Tensor, num_nodes: int) -> Tensor:
    """softmax over all edges that share a target node; scores is [E, H]"""
    idx = index.unsqueeze(-1).expand_as(scores)
    peak = torch.full((num_nodes, scores.size(1)), float("-inf"), device=scores.device, dtype=scores.dtype)
    peak = peak.scatter_reduce(0, idx, scores, reduce="amax", include_self=True)
    ex = (scores - peak.detach()[index]).exp()
    denom = torch.zeros(num_nodes, scores.size(1), device=scores.device, dtype=scores.dtype).index_add_(0, index, ex)
    return ex / (denom[index] + 1e-12)


class GATLayer(nn.Module):
    def __init__(self, d_in: int, d_out: int, heads: int, concat: bool = True, dropout: float = 0.3):
        super().__init__()
        self.heads, self.d_out, self.concat = heads, d_out, concat
        self.proj = nn.Linear(d_in, heads * d_out, bias=False)
        self.a_src = nn.Parameter(torch.empty(1, heads, d_out))
        self.a_dst = nn.Parameter(torch.empty(1, heads, d_out))
        self.bias = nn.Parameter(torch.zeros(heads * d_out if concat else d_out))
        self.leaky = nn.LeakyReLU(0.2)
        self.drop = nn.Dropout(dropout)
        for p in (self.proj.weight, self.a_src, self.a_dst):
            nn.init.xavier_uniform_(p)

    def forward(self, x: Tensor, edges: Tensor) -> tuple[Tensor, Tensor]:
        n = x.size(0)
        src, dst = edges
        h = self.proj(self.drop(x)).view(n, self.heads, self.d_out)
        e = (h * self.a_src).sum(-1)[src] + (h * self.a_dst).sum(-1)[dst]
        alpha = scatter_softmax(self.leaky(e), dst, n)
        msg = h[src] * self.drop(alpha).unsqueeze(-1)
        out = torch.zeros_like(h).index_add(0, dst, msg)
        out = out.flatten(1) if self.concat else out.mean(dim=1)
        return out + self.bias, alpha


class GAT(nn.Module):
    def __init__(self, d_in, hidden, classes):
        super().__init__()
        self.g1 = GATLayer(d_in, hidden, heads=4)
        self.g2 = GATLayer(hidden * 4, classes, heads=2, concat=False)

    def forward(self, x, edges):
        h, _ = self.g1(x, edges)
        return self.g2(nn.functional.elu(h), edges)


def make_data(n=90, classes=3):
    y = torch.randint(0, classes, (n,))
    link = torch.rand(n, n) < torch.where(y[:, None] == y[None], 0.15, 0.015)
    link.fill_diagonal_(True)          # self loops
    link = link | link.t()
    edges = torch.nonzero(link).t()
    x = torch.randn(n, 10) + nn.functional.one_hot(y, 10) * 1.0
    order = torch.randperm(n)
    train, val = torch.zeros(n, dtype=torch.bool), torch.zeros(n, dtype=torch.bool)
    train[order[:30]] = True
    val[order[30:]] = True
    return x, y, edges, train, val


def main():
    torch.manual_seed(0)
    dev = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    x, y, edges, train_mask, val_mask = (t.to(dev) for t in make_data())
    log.info("nodes %d edges %d", x.size(0), edges.size(1))
    net = GAT(x.size(1), 8, int(y.max()) + 1).to(dev)
    opt = torch.optim.AdamW(net.parameters(), lr=0.02, weight_decay=1e-3)
    loss_fn = nn.CrossEntropyLoss()
    best_loss, bad = float("inf"), 0
    for step in range(40):
        net.train()
        logits, _ = net(x, edges)
        loss = loss_fn(logits[train_mask], y[train_mask])
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 4 == 0:
            net.eval()
            with torch.inference_mode():
                logits, att = net(x, edges)
                vloss = loss_fn(logits[val_mask], y[val_mask]).item()
                vacc = logits[val_mask].argmax(1).eq(y[val_mask]).float().mean().item()
                entropy = -(att * (att + 1e-9).log()).sum() / x.size(0)
            log.info("step %3d train %.3f val %.3f acc %.2f attention entropy %.3f", step, loss, vloss, vacc, entropy)
            if vloss < best_loss - 1e-3:
                best_loss, bad = vloss, 0
            else:
                bad += 1
                if bad == 4:
                    log.info("early stop")
                    break
    log.info("best validation loss %.3f", best_loss)


if __name__ == "__main__":
    main()
