import torch
import torch.nn.functional as F
import math
import pickle, gzip
import numpy as np

# fake "mnist.pkl.gz"
rs = np.random.RandomState(0)
protos = rs.rand(10, 64).astype("float32")


def fake(n):
    y = rs.randint(0, 10, n)
    return (protos[y] + 0.35 * rs.randn(n, 64)).astype("float32"), y.astype("int64")


with gzip.open("digits.pkl.gz", "wb") as f:
    pickle.dump((fake(640), fake(160)), f)

with gzip.open("digits.pkl.gz", "rb") as f:
    ((x_train, y_train), (x_valid, y_valid)) = pickle.load(f)

dev = torch.device("cuda") if torch.cuda.is_available() else torch.device("cpu")
x_train, y_train, x_valid, y_valid = map(lambda a: torch.tensor(a).to(dev), (x_train, y_train, x_valid, y_valid))
n, c = x_train.shape
print(x_train.shape, y_train.min(), y_train.max())

# ------------------------------------------------ version 1: raw tensors
torch.manual_seed(1)
W1 = (torch.randn(64, 32, device=dev) / math.sqrt(64)).requires_grad_()
b1 = torch.zeros(32, device=dev, requires_grad=True)
W2 = (torch.randn(32, 10, device=dev) / math.sqrt(32)).requires_grad_()
b2 = torch.zeros(10, device=dev, requires_grad=True)


def model(xb):
    return torch.relu(xb @ W1 + b1) @ W2 + b2


def nll(logits, target):
    logp = logits - logits.exp().sum(-1).log().unsqueeze(-1)
    return -logp[range(target.shape[0]), target].mean()


def accuracy(out, yb):
    return (torch.argmax(out, dim=1) == yb).float().mean()


bs, lr, epochs = 64, 0.3, 2
print("start", nll(model(x_valid), y_valid), accuracy(model(x_valid), y_valid))
for epoch in range(epochs):
    for i in range((n - 1) // bs + 1):
        xb, yb = x_train[i * bs : i * bs + bs], y_train[i * bs : i * bs + bs]
        loss = nll(model(xb), yb)
        loss.backward()
        with torch.no_grad():
            for p in (W1, b1, W2, b2):
                p -= lr * p.grad
                p.grad.zero_()
    print(epoch, loss.item(), accuracy(model(x_valid), y_valid).item())

# ------------------------------------------------ version 2: module, p.data
net = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.Tanh(), torch.nn.Linear(32, 10)).to(dev)
momentum = {p: torch.zeros_like(p.data) for p in net.parameters()}
total_loss = 0.0
best_val, best_w = None, None
lr = 0.2
for epoch in range(3):
    perm = torch.randperm(n, device=dev)
    for b, idx in enumerate(perm.split(bs)):
        net.zero_grad()
        loss = F.cross_entropy(net(x_train[idx]), y_train[idx])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 0.25)
        for p in net.parameters():
            momentum[p].mul_(0.9).add_(p.grad)
            p.data.add_(momentum[p], alpha=-lr)
        total_loss += loss.item()
        if b % 5 == 0 and b > 0:
            print("| epoch {:3d} | {:3d} batches | lr {:02.2f} | loss {:5.2f}".format(epoch, b, lr, total_loss / 5))
            total_loss = 0
    with torch.no_grad():
        val_loss = F.cross_entropy(net(x_valid), y_valid).item()
    print(
        "| end of epoch {:3d} | valid loss {:5.2f} | valid acc {:5.3f}".format(
            epoch, val_loss, accuracy(net(x_valid), y_valid)
        )
    )
    if not best_val or val_loss < best_val:
        best_val = val_loss
        best_w = [p.detach().clone() for p in net.parameters()]
    else:
        lr /= 4.0
for p, w in zip(net.parameters(), best_w):
    p.data.copy_(w)
