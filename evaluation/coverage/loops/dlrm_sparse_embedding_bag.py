"""Click-through rates: bottom MLP, EmbeddingBags with sparse grads, pairwise dot interaction, top MLP."""
import argparse
import sys
import time

import numpy as np
import sklearn.metrics
import torch
import torch.nn as nn

def create_mlp(sizes, sigmoid_layer=-1):
    layers = []
    for i in range(len(sizes) - 1):
        n, m = sizes[i], sizes[i + 1]
        lin = nn.Linear(n, m)
        lin.weight.data = torch.tensor(np.random.normal(0.0, np.sqrt(2 / (m + n)), (m, n)).astype(np.float32), requires_grad=True)
        lin.bias.data = torch.tensor(np.random.normal(0.0, np.sqrt(1 / m), m).astype(np.float32), requires_grad=True)
        layers += [lin, nn.Sigmoid() if i == sigmoid_layer else nn.ReLU()]
    return nn.Sequential(*layers)

class DLRM(nn.Module):
    def __init__(self, rows, dim, bot, top):
        super().__init__()
        self.embs = nn.ModuleList(nn.EmbeddingBag(n, dim, mode="sum", sparse=True) for n in rows)
        for e in self.embs:
            nn.init.uniform_(e.weight, -np.sqrt(1 / e.num_embeddings), np.sqrt(1 / e.num_embeddings))
        f = len(rows) + 1
        self.bot = create_mlp(bot + [dim])
        self.top = create_mlp([dim + f * (f - 1) // 2] + top + [1], sigmoid_layer=len(top))
        li = torch.tensor([i for i in range(f) for j in range(i)])
        lj = torch.tensor([j for i in range(f) for j in range(i)])
        self.register_buffer("li", li)
        self.register_buffer("lj", lj)

    def forward(self, dense, indices, offsets):
        x = self.bot(dense)
        vecs = [x] + [e(i, o) for e, i, o in zip(self.embs, indices, offsets)]
        T = torch.stack(vecs, dim=1)
        Z = torch.bmm(T, T.transpose(1, 2))
        return self.top(torch.cat([x, Z[:, self.li, self.lj]], dim=1)).squeeze(1)

class ClickStream:
    """multi-hot categorical features with a varying number of values per row"""

    def __init__(self, rows, num_dense, seed):
        self.rng = np.random.RandomState(seed)
        self.rows, self.num_dense = rows, num_dense
        self.w = [np.random.RandomState(99 + k).randn(n) for k, n in enumerate(rows)]

    def batch(self, bs):
        dense = self.rng.rand(bs, self.num_dense).astype(np.float32)
        logit = dense.sum(1) - self.num_dense / 2
        idx, off = [], []
        for w, n in zip(self.w, self.rows):
            counts = self.rng.randint(1, 5, bs)
            ids = self.rng.randint(0, n, counts.sum())
            starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
            logit = logit + np.add.reduceat(w[ids], starts)
            idx.append(torch.as_tensor(ids, dtype=torch.long))
            off.append(torch.as_tensor(starts, dtype=torch.long))
        y = (self.rng.rand(bs) < 1 / (1 + np.exp(-logit))).astype(np.float32)
        return torch.from_numpy(dense), idx, off, torch.from_numpy(y)

def move(dense, idx, off, y, dev):
    return dense.to(dev), [i.to(dev) for i in idx], [o.to(dev) for o in off], y.to(dev)

def inference(model, stream, n_batches, bs, dev):
    scores, targets = [], []
    model.eval()
    with torch.no_grad():
        for _ in range(n_batches):
            dense, idx, off, y = move(*stream.batch(bs), dev)
            scores.append(model(dense, idx, off).cpu().numpy())
            targets.append(y.cpu().numpy())
    model.train()
    s, t = np.concatenate(scores), np.concatenate(targets)
    return sklearn.metrics.roc_auc_score(t, s), sklearn.metrics.log_loss(t, s), np.mean((s > 0.5) == t)

def run():
    p = argparse.ArgumentParser()
    p.add_argument("--arch-embedding-size", default="60-40-200")
    p.add_argument("--arch-sparse-feature-size", type=int, default=8)
    p.add_argument("--mini-batch-size", type=int, default=64)
    p.add_argument("--num-batches", type=int, default=60)
    p.add_argument("--test-freq", type=int, default=20)
    p.add_argument("--learning-rate", type=float, default=0.01)
    p.add_argument("--numpy-rand-seed", type=int, default=123)
    p.add_argument("--use-gpu", action="store_true")
    args = p.parse_args()
    np.random.seed(args.numpy_rand_seed)
    torch.manual_seed(args.numpy_rand_seed)
    dev = torch.device("cuda", 0) if args.use_gpu and torch.cuda.is_available() else torch.device("cpu")
    rows = [int(v) for v in args.arch_embedding_size.split("-")]
    if len(rows) < 2:
        sys.exit("need at least two tables")
    model = DLRM(rows, args.arch_sparse_feature_size, [6, 16], [16]).to(dev)
    sparse_opt = torch.optim.SparseAdam(list(model.embs.parameters()), lr=args.learning_rate)
    dense_opt = torch.optim.Adam([q for n, q in model.named_parameters() if not n.startswith("embs")], lr=args.learning_rate)
    loss_fn = nn.BCELoss()
    train, test = ClickStream(rows, 6, 0), ClickStream(rows, 6, 1)
    best_auc, total_loss, total_time = 0.0, 0.0, 0.0
    for j in range(args.num_batches):
        t1 = time.time()
        dense, idx, off, y = move(*train.batch(args.mini_batch_size), dev)
        loss = loss_fn(model(dense, idx, off), y)
        dense_opt.zero_grad()
        sparse_opt.zero_grad()
        loss.backward()
        dense_opt.step()
        sparse_opt.step()
        total_loss += loss.detach().cpu().numpy() * y.shape[0]
        total_time += time.time() - t1
        if (j + 1) % args.test_freq == 0:
            n = args.test_freq * args.mini_batch_size
            print("Finished training it {}/{}, {:.2f} ms/it, loss {:.6f}".format(j + 1, args.num_batches, 1000 * total_time / args.test_freq, total_loss / n))
            total_loss = total_time = 0
            auc, ll, acc = inference(model, test, 4, 128, dev)
            best_auc = max(best_auc, auc)
            print(f"  auc {auc:.4f}, best auc {best_auc:.4f}, logloss {ll:.4f}, accuracy {100 * acc:.2f} %", flush=True)

if __name__ == "__main__":
    run()
