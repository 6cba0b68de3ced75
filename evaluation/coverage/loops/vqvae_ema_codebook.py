from dataclasses import dataclass, field
from typing import List

import torch
import torch.nn as nn
import torch.nn.functional as F

@dataclass
class Hps:
    codes: int = 24
    dim: int = 8
    decay: float = 0.95
    commitment: float = 0.25
    steps: int = 40
    batch: int = 16
    lr: float = 2e-3
    restart_below: float = 0.05
    log_at: List[int] = field(default_factory=lambda: [0, 9, 19, 29, 39])

class EMACodebook(nn.Module):
    def __init__(self, hps):
        super().__init__()
        self.hps = hps
        w = torch.randn(hps.codes, hps.dim)
        self.register_buffer("weight", w)
        self.register_buffer("cluster_size", torch.ones(hps.codes))
        self.register_buffer("w_sum", w.clone())
        self.register_buffer("initialised", torch.tensor(False))

    @torch.no_grad()
    def _init_from(self, flat):
        pick = torch.randperm(flat.size(0), device=flat.device)[: self.hps.codes]
        self.weight.copy_(flat[pick])
        self.w_sum.copy_(flat[pick])
        self.initialised.fill_(True)

    def forward(self, z):
        b, c, h, w = z.shape
        flat = z.permute(0, 2, 3, 1).reshape(-1, c)
        if self.training and not self.initialised:
            self._init_from(flat)
        d = flat.pow(2).sum(1, keepdim=True) - 2 * flat @ self.weight.t() + self.weight.pow(2).sum(1)
        idx = torch.argmin(d, dim=1)
        onehot = F.one_hot(idx, self.hps.codes).type(flat.dtype)
        quant = (onehot @ self.weight).view(b, h, w, c).permute(0, 3, 1, 2)
        if self.training:
            with torch.no_grad():
                g = self.hps.decay
                self.cluster_size.mul_(g).add_(onehot.sum(0), alpha=1 - g)
                self.w_sum.mul_(g).add_(onehot.t() @ flat, alpha=1 - g)
                n = self.cluster_size.sum()
                size = (self.cluster_size + 1e-5) / (n + self.hps.codes * 1e-5) * n
                self.weight.copy_(self.w_sum / size.unsqueeze(1))
                dead = self.cluster_size < self.hps.restart_below
                if dead.any():
                    k = int(dead.sum())
                    fresh = flat[torch.randint(0, flat.size(0), (k,), device=flat.device)]
                    self.weight[dead] = fresh
                    self.w_sum[dead] = fresh
                    self.cluster_size[dead] = 1.0
        commit = F.mse_loss(z, quant.detach())
        probs = onehot.mean(0)
        perplexity = torch.exp(-(probs * torch.log(probs + 1e-10)).sum())
        return z + (quant - z).detach(), commit, perplexity, idx.view(b, h, w)

class VQVAE(nn.Module):
    def __init__(self, hps):
        super().__init__()
        self.enc = nn.Sequential(nn.Conv2d(1, 16, 4, 2, 1), nn.ReLU(), nn.Conv2d(16, 16, 4, 2, 1), nn.ReLU(), nn.Conv2d(16, hps.dim, 1))
        self.vq = EMACodebook(hps)
        self.dec = nn.Sequential(nn.Conv2d(hps.dim, 16, 3, 1, 1), nn.ReLU(), nn.ConvTranspose2d(16, 16, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(16, 1, 4, 2, 1))

    def forward(self, x):
        q, commit, ppl, codes = self.vq(self.enc(x))
        return self.dec(q), commit, ppl, codes

def batch(n, device):
    # checkerboards of random period and phase
    period = torch.randint(2, 5, (n, 1, 1))
    ii = torch.arange(16).view(1, 16, 1) + torch.randint(0, 4, (n, 1, 1))
    jj = torch.arange(16).view(1, 1, 16)
    img = (((ii // period) + (jj // period)) % 2).float() * 2 - 1
    return img.unsqueeze(1).to(device)

if __name__ == "__main__":
    torch.manual_seed(4)
    hps = Hps()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = VQVAE(hps).to(device)
    opt = torch.optim.Adam(model.parameters(), lr=hps.lr, amsgrad=True)
    val = batch(32, device)
    history = []
    for step in range(hps.steps):
        model.train()
        x = batch(hps.batch, device)
        rec, commit, ppl, _ = model(x)
        rec_loss = F.mse_loss(rec, x)
        loss = rec_loss + hps.commitment * commit
        opt.zero_grad()
        loss.backward()
        opt.step()
        history.append(rec_loss.item())
        if step in hps.log_at:
            model.eval()
            with torch.no_grad():
                vrec, _, vppl, codes = model(val)
            used = codes.unique().numel()
            print(f"step {step:3d} rec {history[-1]:.4f} commit {commit.item():.4f} ppl {ppl.item():.2f} "
                  f"| val mse {F.mse_loss(vrec, val).item():.4f} ppl {vppl.item():.2f} codes used {used}/{hps.codes}")
    print("mean rec loss of the last ten steps: %.4f" % (sum(history[-10:]) / 10))
