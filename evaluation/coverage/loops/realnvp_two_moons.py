# density estimation of two moons with affine coupling layers
import math

import numpy as np
import torch
from sklearn.datasets import make_moons
from torch import distributions, nn, optim

np.random.seed(0)
torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def mlp(last_act=None):
    layers = [nn.Linear(2, 48), nn.LeakyReLU(), nn.Linear(48, 48), nn.LeakyReLU(), nn.Linear(48, 2)]
    if last_act is not None:
        layers.append(last_act)
    return nn.Sequential(*layers)


class RealNVP(nn.Module):
    def __init__(self, masks, prior):
        super().__init__()
        self.prior = prior
        self.mask = nn.Parameter(masks, requires_grad=False)
        self.s = nn.ModuleList([mlp(nn.Tanh()) for _ in range(len(masks))])
        self.t = nn.ModuleList([mlp() for _ in range(len(masks))])

    def g(self, z):
        x = z
        for i in range(len(self.t)):
            x_ = x * self.mask[i]
            s = self.s[i](x_) * (1 - self.mask[i])
            t = self.t[i](x_) * (1 - self.mask[i])
            x = x_ + (1 - self.mask[i]) * (x * torch.exp(s) + t)
        return x

    def f(self, x):
        log_det_J, z = x.new_zeros(x.shape[0]), x
        for i in reversed(range(len(self.t))):
            z_ = self.mask[i] * z
            s = self.s[i](z_) * (1 - self.mask[i])
            t = self.t[i](z_) * (1 - self.mask[i])
            z = (1 - self.mask[i]) * (z - t) * torch.exp(-s) + z_
            log_det_J -= s.sum(dim=1)
        return z, log_det_J

    def log_prob(self, x):
        z, logp = self.f(x)
        return self.prior.log_prob(z) + logp

    def sample(self, n):
        z = self.prior.sample((n,))
        return self.g(z)


masks = torch.from_numpy(np.array([[0, 1], [1, 0]] * 3).astype(np.float32))
prior = distributions.MultivariateNormal(torch.zeros(2, device=device), torch.eye(2, device=device))
flow = RealNVP(masks, prior).to(device)
optimizer = optim.Adam([p for p in flow.parameters() if p.requires_grad], lr=2e-3)

x_val = torch.from_numpy(make_moons(n_samples=400, noise=0.05)[0].astype(np.float32)).to(device)
best_nll = math.inf
for t in range(61):
    noisy_moons = make_moons(n_samples=100, noise=0.05)[0].astype(np.float32)
    loss = -flow.log_prob(torch.from_numpy(noisy_moons).to(device)).mean()

    if torch.isnan(loss):
        print("nan at", t, "- skipping")
        continue
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

    if t % 20 == 0:
        with torch.no_grad():
            nll = -flow.log_prob(x_val).mean().item()
        bits = nll / math.log(2) / 2
        print("iter %s:" % t, "loss = %.3f" % loss, "val nll = %.3f (%.3f bits/dim)" % (nll, bits))
        if nll < best_nll:
            best_nll = nll
            torch.save({"iter": t, "flow": flow.state_dict(), "nll": nll}, "flow_best.pt")

state = torch.load("flow_best.pt", map_location=device)
flow.load_state_dict(state["flow"])
flow.eval()
with torch.no_grad():
    # invertibility check
    z, _ = flow.f(x_val)
    err = (flow.g(z) - x_val).abs().max().item()
    samples = flow.sample(500).cpu().numpy()
print("best iter", state["iter"], "max inversion error %.1e" % err)
hist, _, _ = np.histogram2d(samples[:, 0], samples[:, 1], bins=6, range=[[-1.5, 2.5], [-1, 1.5]])
print(hist.astype(int))
