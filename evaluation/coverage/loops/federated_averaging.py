# FedAvg, 3 clients with non-iid labels
import copy
import logging
import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Subset, TensorDataset

logging.basicConfig(level=logging.INFO, format="[%(levelname).1s] %(message)s")

NUM_CLIENTS = 3
ROUNDS = 4
LOCAL_EPOCHS = 1
FRACTION = 0.7
MU = 0.01            # proximal term, 0 switches it off

def seed_all(s):
    random.seed(s)
    np.random.seed(s)
    torch.manual_seed(s)
    if torch.cuda.is_available():
        torch.cuda.manual_seed_all(s)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 8, 3)
        self.bn = nn.BatchNorm2d(8)
        self.fc = nn.Linear(8 * 3 * 3, 6)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.bn(self.conv(x))), 2)
        return F.log_softmax(self.fc(x.flatten(1)), dim=1)

class Client:
    def __init__(self, cid, dataset, device):
        self.cid, self.device = cid, device
        self.loader = DataLoader(dataset, batch_size=16, shuffle=True, drop_last=True)
        self.n = len(dataset)

    def local_update(self, global_model, lr):
        model = copy.deepcopy(global_model).to(self.device)
        frozen = [p.detach().clone() for p in global_model.parameters()]
        opt = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.5)
        model.train()
        epoch_loss = []
        for _ in range(LOCAL_EPOCHS):
            batch_loss = []
            for x, y in self.loader:
                x, y = x.to(self.device), y.to(self.device)
                model.zero_grad()
                loss = F.nll_loss(model(x), y)
                if MU > 0:
                    loss = loss + 0.5 * MU * sum(((p - q) ** 2).sum() for p, q in zip(model.parameters(), frozen))
                loss.backward()
                opt.step()
                batch_loss.append(loss.item())
            epoch_loss.append(sum(batch_loss) / len(batch_loss))
        return model.state_dict(), sum(epoch_loss) / len(epoch_loss)

def average_weights(states, sizes):
    total = float(sum(sizes))
    avg = copy.deepcopy(states[0])
    for key in avg.keys():
        if avg[key].dtype.is_floating_point:
            avg[key] = sum(s[key] * (n / total) for s, n in zip(states, sizes))
        else:
            avg[key] = torch.stack([s[key] for s in states]).max()     # num_batches_tracked
    return avg

def partition(labels, n_clients, alpha=0.5):
    parts = [[] for _ in range(n_clients)]
    for c in np.unique(labels):
        idx = np.random.permutation(np.where(labels == c)[0])
        cuts = (np.cumsum(np.random.dirichlet([alpha] * n_clients)) * len(idx)).astype(int)[:-1]
        for part, chunk in zip(parts, np.split(idx, cuts)):
            part.extend(chunk.tolist())
    return parts

def test(model, x, y):
    model.eval()
    with torch.no_grad():
        out = model(x)
        return F.nll_loss(out, y).item(), 100.0 * (out.argmax(1) == y).sum().item() / len(y)

def main():
    seed_all(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    y = torch.randint(0, 6, (420,))
    protos = torch.randn(6, 1, 8, 8)
    x = protos[y] + 0.5 * torch.randn(420, 1, 8, 8)
    train, test_x, test_y = TensorDataset(x[:330], y[:330]), x[330:].to(device), y[330:].to(device)
    parts = partition(y[:330].numpy(), NUM_CLIENTS)
    clients = [Client(i, Subset(train, p), device) for i, p in enumerate(parts) if len(p) >= 16]
    for c in clients:
        logging.info("client %d has %d samples", c.cid, c.n)
    global_model = Net().to(device)
    logging.info("initial test loss %.3f acc %.1f%%", *test(global_model, test_x, test_y))
    best_acc, lr = 0.0, 0.05
    for rnd in range(1, ROUNDS + 1):
        m = max(2, int(FRACTION * len(clients)))
        chosen = random.sample(clients, m) if rnd > 1 else clients
        states, losses = [], []
        for c in chosen:
            w, loss = c.local_update(global_model, lr)
            states.append(copy.deepcopy(w))
            losses.append(loss)
        global_model.load_state_dict(average_weights(states, [c.n for c in chosen]))
        lr *= 0.95
        tl, acc = test(global_model, test_x, test_y)
        logging.info("round %d clients %s train %.3f test %.3f acc %.1f%%", rnd, [c.cid for c in chosen], sum(losses) / len(losses), tl, acc)
        if acc > best_acc:
            best_acc = acc
            torch.save(global_model.state_dict(), "global_best.pt")
    logging.info("best accuracy %.1f%%", best_acc)

if __name__ == "__main__":
    main()
