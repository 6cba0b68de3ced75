import math

import torch
import torch.distributions as D
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset, random_split

torch.manual_seed(0)


class MDN(nn.Module):
    """p(y|x) = sum_k pi_k(x) N(mu_k(x), sigma_k(x))"""

    def __init__(self, d_in, d_out, k=5, hidden=32):
        super().__init__()
        self.k, self.d_out = k, d_out
        self.body = nn.Sequential(nn.Linear(d_in, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh())
        self.logits = nn.Linear(hidden, k)
        self.mu = nn.Linear(hidden, k * d_out)
        self.raw_sigma = nn.Linear(hidden, k * d_out)

    def forward(self, x) -> D.MixtureSameFamily:
        h = self.body(x)
        mu = self.mu(h).view(-1, self.k, self.d_out)
        sigma = nn.functional.softplus(self.raw_sigma(h)).view(-1, self.k, self.d_out) + 1e-3
        return D.MixtureSameFamily(D.Categorical(logits=self.logits(h)), D.Independent(D.Normal(mu, sigma), 1))


# the inverse problem: y -> x is multi-valued
y = torch.rand(600, 1) * 2 - 1
x = y + 0.3 * torch.sin(2 * math.pi * y) + 0.05 * torch.randn_like(y)
x = (x - x.mean()) / x.std()
data = TensorDataset(x, y)
train_set, val_set = random_split(data, [0.8, 0.2], generator=torch.Generator().manual_seed(0))
train_loader = DataLoader(train_set, batch_size=48, shuffle=True)
val_x, val_y = val_set[:]

device = "cuda" if torch.cuda.is_available() else "cpu"
net = MDN(1, 1).to(device)
opt = torch.optim.Adam(net.parameters(), lr=1e-2)
lr_lambda = lambda step: min(1.0, (step + 1) / 5) * 0.5 ** (step // 25)
sched = torch.optim.lr_scheduler.LambdaLR(opt, lr_lambda)
val_x, val_y = val_x.to(device), val_y.to(device)


def validate():
    net.eval()
    with torch.no_grad():
        dist = net(val_x)
        nll = -dist.log_prob(val_y).mean()
        mae = (dist.mean - val_y).abs().mean()
        usage = dist.mixture_distribution.probs.mean(0)
    net.train()
    return nll.item(), mae.item(), usage.cpu().tolist()


best_nll = float("inf")
step = 0
print("before training: nll %.3f" % validate()[0])
for epoch in range(6):
    for xb, yb in train_loader:
        xb, yb = xb.to(device), yb.to(device)
        dist = net(xb)
        nll = -dist.log_prob(yb).mean()
        # keep the mixing weights from dying too soon
        entropy = dist.mixture_distribution.entropy().mean()
        loss = nll - 0.01 * entropy
        if not torch.isfinite(loss):
            raise RuntimeError(f"loss is {loss} at step {step}")
        opt.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_value_(net.parameters(), 1.0)
        opt.step()
        sched.step()
        step += 1
    val_nll, mae, usage = validate()
    flag = ""
    if val_nll < best_nll:
        best_nll = val_nll
        torch.save({"model": net.state_dict(), "val_nll": val_nll, "epoch": epoch}, "mdn_best.pt")
        flag = "*"
    print(f"epoch {epoch} step {step} train nll {nll:.3f} val nll {val_nll:.3f} mae {mae:.3f} "
          f"pi {[round(u, 2) for u in usage]} lr {sched.get_last_lr()[0]:.4f} {flag}")

ckpt = torch.load("mdn_best.pt", weights_only=True)
net.load_state_dict(ckpt["model"])
with torch.no_grad():
    dist = net(torch.zeros(1, 1, device=device))
    samples = dist.sample((1000,)).flatten()
q = torch.quantile(samples, torch.tensor([0.05, 0.5, 0.95], device=samples.device))
print("x=0: quantiles of y", [f"{v:.2f}" for v in q.tolist()], "from epoch", ckpt["epoch"])
