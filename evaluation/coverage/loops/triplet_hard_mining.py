# metric learning: PK sampler + batch-hard triplets
import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import BatchSampler, DataLoader, TensorDataset

class PKSampler(BatchSampler):
    """every batch has P identities with K examples each"""

    def __init__(self, labels, p, k, n_batches):
        self.labels = np.asarray(labels)
        self.ids = np.unique(self.labels)
        self.p, self.k, self.n_batches = p, k, n_batches

    def __iter__(self):
        for _ in range(self.n_batches):
            batch = []
            for c in np.random.choice(self.ids, self.p, replace=False):
                pool = np.where(self.labels == c)[0]
                batch.extend(np.random.choice(pool, self.k, replace=len(pool) < self.k).tolist())
            yield batch

    def __len__(self):
        return self.n_batches

def pdist(a, eps=1e-12):
    sq = a.pow(2).sum(dim=1)
    d2 = (sq.unsqueeze(0) + sq.unsqueeze(1) - 2 * a @ a.t()).clamp(min=eps)
    d = d2.sqrt().clone()
    d[range(len(a)), range(len(a))] = 0
    return d

def batch_hard(emb, labels, margin):
    d = pdist(emb)
    same = labels.unsqueeze(0) == labels.unsqueeze(1)
    eye = torch.eye(len(labels), dtype=torch.bool, device=emb.device)
    hardest_pos = d.masked_fill(~(same & ~eye), 0.0).max(dim=1)[0]
    hardest_neg = d.masked_fill(same, float("inf")).min(dim=1)[0]
    triplet = torch.relu(hardest_pos - hardest_neg + margin)
    active = triplet > 0
    if active.sum() == 0:
        return triplet.sum() * 0.0, 0.0
    return triplet[active].mean(), active.float().mean().item()

def semi_hard(emb, labels, margin):
    """slow python version, used for the first few iterations only"""
    d = pdist(emb)
    dn = d.detach().cpu().numpy()
    lab = labels.cpu().numpy()
    terms = []
    for a in range(len(lab)):
        for p in np.where(lab == lab[a])[0]:
            if p == a:
                continue
            neg = np.where(lab != lab[a])[0]
            vals = dn[a, p] - dn[a, neg] + margin
            ok = np.where((vals < margin) & (vals > 0))[0]
            if len(ok) > 0:
                n = neg[np.random.choice(ok)]
                terms.append(torch.relu(d[a, p] - d[a, n] + margin))
    if not terms:
        return emb.sum() * 0, 0.0
    return torch.stack(terms).mean(), len(terms) / len(lab)

def recall_at_1(net, x, y):
    net.eval()
    with torch.no_grad():
        d = pdist(net(x))
        d.fill_diagonal_(float("inf"))
        r = (y[d.argmin(1)] == y).float().mean()
    net.train()
    return r.item()

if __name__ == "__main__":
    np.random.seed(2)
    torch.manual_seed(2)
    use_cuda = torch.cuda.is_available()
    n_id, dim = 20, 32
    centers = torch.randn(n_id, dim)
    y = torch.arange(n_id).repeat_interleave(16)
    x = centers[y] + 1.2 * torch.randn(len(y), dim)
    xv = centers[y[::4]] + 1.2 * torch.randn(len(y[::4]), dim)
    yv = y[::4]

    net = nn.Sequential(nn.Linear(dim, 64), nn.PReLU(), nn.Linear(64, 64), nn.PReLU(), nn.Linear(64, 8))
    if use_cuda:
        net, xv, yv = net.cuda(), xv.cuda(), yv.cuda()
    loader = DataLoader(TensorDataset(x, y), batch_sampler=PKSampler(y.numpy(), p=6, k=4, n_batches=12))
    opt = torch.optim.Adam(net.parameters(), lr=2e-3)
    best, it = recall_at_1(net, xv, yv), 0
    print("R@1 before", best)
    for epoch in range(3):
        stats = []
        for xb, yb in loader:
            if use_cuda:
                xb, yb = xb.cuda(), yb.cuda()
            e = net(xb)
            loss, frac = semi_hard(e, yb, 0.5) if it < 4 else batch_hard(e, yb, 0.5)
            it += 1
            if not loss.requires_grad or frac == 0:
                continue
            opt.zero_grad()
            loss.backward()
            opt.step()
            stats.append((loss.item(), frac, e.detach().norm(dim=1).mean().item()))
        r1 = recall_at_1(net, xv, yv)
        print("epoch %d: loss %.3f, active %.2f, embedding norm %.2f | R@1 %.3f" % ((epoch,) + tuple(np.mean(stats, axis=0)) + (r1,)))
        if r1 > best:
            best = r1
            torch.save(net, "best_embedder.pt")
