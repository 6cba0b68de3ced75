# GraphSAGE (mean aggregator) with neighbor sampling, no graph library
import collections
import random
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.metrics import f1_score

np.random.seed(1)
random.seed(1)
torch.manual_seed(1)

N, NUM_CLASSES, FEAT = 300, 5, 24
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

def build_graph():
    labels = np.random.randint(0, NUM_CLASSES, N)
    adj = collections.defaultdict(set)
    while sum(len(v) for v in adj.values()) < 12 * N:
        i, j = np.random.randint(0, N, 2)
        keep = 0.9 if labels[i] == labels[j] else 0.08
        if i != j and np.random.rand() < keep:
            adj[int(i)].add(int(j))
            adj[int(j)].add(int(i))
    centers = np.random.randn(NUM_CLASSES, FEAT)
    feats = centers[labels] * 0.5 + np.random.randn(N, FEAT)
    return feats.astype("float32"), labels, adj

feats, labels, adj_lists = build_graph()
features = torch.from_numpy(feats).to(device)
labels_t = torch.as_tensor(labels, dtype=torch.long, device=device)

def sample_neighbors(nodes, k):
    """returns for every node a fixed number of neighbors (with replacement if there are too few)"""
    out = []
    for v in nodes:
        neigh = list(adj_lists[v]) or [v]
        out.append(random.sample(neigh, k) if len(neigh) >= k else random.choices(neigh, k=k))
    return out

class SageLayer(nn.Module):
    def __init__(self, d_in, d_out, act=True):
        super().__init__()
        self.self_lin = nn.Linear(d_in, d_out, bias=False)
        self.neigh_lin = nn.Linear(d_in, d_out)
        self.act = act

    def forward(self, h_self, h_neigh):
        h = self.self_lin(h_self) + self.neigh_lin(h_neigh.mean(dim=-2))
        if self.act:
            h = F.normalize(F.relu(h), p=2, dim=-1)
        return h

class GraphSAGE(nn.Module):
    def __init__(self, fanouts=(8, 4), hidden=32):
        super().__init__()
        self.fanouts = fanouts
        self.l1 = SageLayer(FEAT, hidden)
        self.l2 = SageLayer(hidden, NUM_CLASSES, act=False)

    def forward(self, nodes):
        k1, k2 = self.fanouts
        hop1 = torch.tensor(sample_neighbors(nodes, k1))                                  # B x k1
        hop2 = torch.tensor(sample_neighbors(hop1.flatten().tolist(), k2))                # B*k1 x k2
        root_hop = torch.tensor(sample_neighbors(nodes, k2))
        x0 = features[torch.tensor(nodes, device=features.device)]
        h_root = self.l1(x0, features[root_hop.to(features.device)])
        h_n = self.l1(features[hop1.flatten().to(features.device)], features[hop2.to(features.device)])
        return self.l2(h_root, h_n.view(len(nodes), k1, -1))

model = GraphSAGE().to(device)
opt = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9, nesterov=True)

perm = np.random.permutation(N)
test_idx, val_idx, train_idx = perm[:80], perm[80:120], list(perm[120:])

times = []
best_f1 = 0.0
for epoch in range(4):
    random.shuffle(train_idx)
    model.train()
    for start in range(0, len(train_idx), 45):
        batch = [int(v) for v in train_idx[start:start + 45]]
        t0 = time.time()
        loss = F.cross_entropy(model(batch), labels_t[batch])
        opt.zero_grad()
        loss.backward()
        opt.step()
        times.append(time.time() - t0)
        print(epoch, start // 45, loss.item())
    model.eval()
    with torch.no_grad():
        val_pred = model(val_idx.tolist()).argmax(1).cpu().numpy()
    f1 = f1_score(labels[val_idx], val_pred, average="micro")
    if f1 > best_f1:
        best_f1 = f1
        torch.save(model.state_dict(), "sage_best.pth")
        print("  -> new best val F1 %.3f" % f1)

if best_f1 > 0:
    model.load_state_dict(torch.load("sage_best.pth", map_location=device))
with torch.no_grad():
    pred = model(test_idx.tolist()).argmax(dim=1).cpu().numpy()
print("Test F1 (macro):", f1_score(labels[test_idx], pred, average="macro"))
print("Average batch time:", np.mean(times))
