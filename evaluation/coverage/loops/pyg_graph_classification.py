import random
from collections import defaultdict

import torch
from torch.nn import BatchNorm1d, Linear, ReLU, Sequential
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GINConv, global_add_pool, global_mean_pool

random.seed(5)
torch.manual_seed(5)


def ring(n):
    src = list(range(n))
    dst = [(i + 1) % n for i in range(n)]
    return src + dst, dst + src


def make_graph():
    """label 0: a ring, 1: ring with a few chords, 2: random tree"""
    n = random.randint(6, 14)
    label = random.randrange(3)
    if label == 2:
        s = list(range(1, n))
        d = [random.randrange(i) for i in s]
        s, d = s + d, d + s
    else:
        s, d = ring(n)
        if label == 1:
            for _ in range(3):
                a, b = random.sample(range(n), 2)
                s += [a, b]
                d += [b, a]
    edge_index = torch.tensor([s, d])
    deg = torch.bincount(edge_index[0], minlength=n).float()
    x = torch.stack([deg, deg ** 2 / 10, torch.ones(n)], dim=1)
    return Data(x=x, edge_index=edge_index, y=torch.tensor([label]))


dataset = [make_graph() for _ in range(160)]
train_loader = DataLoader(dataset[:120], batch_size=20, shuffle=True)
test_loader = DataLoader(dataset[120:], batch_size=40)


class GIN(torch.nn.Module):
    def __init__(self, dim_in, hidden, classes, layers=2):
        super().__init__()
        self.convs = torch.nn.ModuleList()
        for i in range(layers):
            mlp = Sequential(Linear(dim_in if i == 0 else hidden, hidden), BatchNorm1d(hidden), ReLU(), Linear(hidden, hidden), ReLU())
            self.convs.append(GINConv(mlp, train_eps=True))
        self.head = Linear(2 * hidden, classes)

    def forward(self, x, edge_index, batch):
        for conv in self.convs:
            x = conv(x, edge_index)
        pooled = torch.cat([global_mean_pool(x, batch), global_add_pool(x, batch) / 10.0], dim=-1)
        return self.head(torch.nn.functional.dropout(pooled, 0.2, self.training))


device = "cuda:0" if torch.cuda.is_available() else "cpu"
model = GIN(3, 16, 3).to(device)
opt = torch.optim.Adam(model.parameters(), lr=0.01)
sched = torch.optim.lr_scheduler.StepLR(opt, step_size=2, gamma=0.5)
criterion = torch.nn.CrossEntropyLoss()


def run(loader, train):
    model.train(train)
    loss_sum, hits = 0.0, 0
    per_class = defaultdict(lambda: [0, 0])
    with torch.set_grad_enabled(train):
        for data in loader:
            data = data.to(device)
            out = model(data.x, data.edge_index, data.batch)
            loss = criterion(out, data.y)
            if train:
                opt.zero_grad()
                loss.backward()
                opt.step()
            loss_sum += loss.item() * data.num_graphs
            pred = out.argmax(1)
            hits += (pred == data.y).sum().item()
            if not train:
                for p, t in zip(pred.tolist(), data.y.tolist()):
                    per_class[t][0] += int(p == t)
                    per_class[t][1] += 1
    n = len(loader.dataset)
    return loss_sum / n, hits / n, per_class


print("untrained: loss %.3f acc %.3f" % run(test_loader, False)[:2])
for epoch in range(4):
    tr_loss, tr_acc, _ = run(train_loader, True)
    te_loss, te_acc, per_class = run(test_loader, False)
    sched.step()
    print(f"{epoch}: train {tr_loss:.3f}/{tr_acc:.2f} test {te_loss:.3f}/{te_acc:.2f} lr {sched.get_last_lr()[0]:.4f}")
print({k: f"{a}/{b}" for k, (a, b) in sorted(per_class.items())})
