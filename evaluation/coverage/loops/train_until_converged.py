# matrix factorization, run until the loss stops changing
import torch

torch.manual_seed(0)
dev = torch.device("cuda") if torch.cuda.is_available() else torch.device("cpu")

n_users, n_items, rank = 60, 40, 4
U0 = torch.randn(n_users, rank)
V0 = torch.randn(n_items, rank)
R = (U0 @ V0.T).to(dev)
mask = (torch.rand(n_users, n_items) < 0.5).to(dev)


class MF(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.u = torch.nn.Embedding(n_users, rank)
        self.v = torch.nn.Embedding(n_items, rank)
        torch.nn.init.normal_(self.u.weight, std=0.3)
        torch.nn.init.normal_(self.v.weight, std=0.3)

    def forward(self):
        return self.u.weight @ self.v.weight.t()


def masked_mse(pred):
    d = (pred - R)[mask]
    return (d**2).mean()


# ---- phase 1: factorization
model = MF().to(dev)
opt = torch.optim.Adam(model.parameters(), lr=0.05)
tol, max_it = 1e-2, 400
it, loss = 0, torch.tensor(float("inf"))
while loss > tol and it < max_it:
    opt.zero_grad()
    loss = masked_mse(model())
    loss.backward()
    opt.step()
    it += 1
    if it % 50 == 0:
        print(it, loss.item())
print("phase 1 finished after", it, "iterations, loss", float(loss))
if loss > tol:
    print("WARNING: not converged")

heldout = ((model() - R)[~mask] ** 2).mean().item()
print("held-out mse", heldout)

# ---- phase 2: logistic regression on the user factors until the relative change is small
labels = (U0[:, 0] > 0).float().to(dev)
feats = model.u.weight.detach()
feats = (feats - feats.mean(0)) / feats.std(0)
w = torch.zeros(rank, device=dev, requires_grad=True)
b = torch.zeros(1, device=dev, requires_grad=True)
sgd = torch.optim.SGD([w, b], lr=1.0)
prev, rel, step = None, 1.0, 0
while rel > 1e-4:
    sgd.zero_grad()
    nll = torch.nn.functional.binary_cross_entropy_with_logits(feats @ w + b, labels)
    nll.backward()
    sgd.step()
    cur = nll.item()
    if prev is not None:
        rel = abs(prev - cur) / max(abs(prev), 1e-12)
    prev = cur
    step += 1
    if step >= 300:
        break
acc = (((feats @ w + b) > 0).float() == labels).float().mean()
print(f"phase 2: {step} steps, nll {prev:.4f}, acc {acc:.3f}, |w|={w.norm().item():.3f}")
