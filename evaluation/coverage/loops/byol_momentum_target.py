import copy
import random

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(10)
random.seed(10)


def loss_fn(p, z):
    p = F.normalize(p, dim=-1, p=2)
    z = F.normalize(z, dim=-1, p=2)
    return 2 - 2 * (p * z).sum(dim=-1)


class EMA:
    def __init__(self, beta):
        self.beta = beta

    def update_average(self, old, new):
        return new if old is None else old * self.beta + (1 - self.beta) * new


class MLPHead(nn.Sequential):
    def __init__(self, dim, out, hidden=64):
        super().__init__(nn.Linear(dim, hidden), nn.BatchNorm1d(hidden), nn.ReLU(inplace=True), nn.Linear(hidden, out))


class BYOL(nn.Module):
    def __init__(self, backbone, dim, proj_dim=16, base_momentum=0.98):
        super().__init__()
        self.online = nn.Sequential(backbone, MLPHead(dim, proj_dim))
        self.predictor = MLPHead(proj_dim, proj_dim)
        self._target = None
        self.ema = EMA(base_momentum)

    @property
    def target(self):
        if self._target is None:      # made lazily after the weights sit on their device
            self._target = copy.deepcopy(self.online)
            for p in self._target.parameters():
                p.requires_grad_(False)
        return self._target

    @torch.no_grad()
    def update_moving_average(self):
        for cur, tgt in zip(self.online.parameters(), self.target.parameters()):
            tgt.data = self.ema.update_average(tgt.data, cur.data)
        for cur, tgt in zip(self.online.buffers(), self.target.buffers()):
            tgt.copy_(cur)

    def forward(self, v1, v2):
        p1, p2 = self.predictor(self.online(v1)), self.predictor(self.online(v2))
        with torch.no_grad():
            t1, t2 = self.target(v1).detach(), self.target(v2).detach()
        return (loss_fn(p1, t2) + loss_fn(p2, t1)).mean()


def jitter(x):
    """signal augmentations: scale, roll, additive noise, dropout of a window"""
    x = x * (0.8 + 0.4 * torch.rand(x.size(0), 1, 1, device=x.device))
    x = torch.roll(x, random.randint(-4, 4), dims=-1)
    if random.random() < 0.8:
        x = x + 0.1 * torch.randn_like(x)
    start = random.randrange(0, x.size(-1) - 8)
    keep = torch.ones(x.size(-1), device=x.device)
    keep[start:start + 8] = 0
    return x * keep


device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
backbone = nn.Sequential(nn.Conv1d(1, 16, 7, 2, 3), nn.BatchNorm1d(16), nn.ReLU(),
                         nn.Conv1d(16, 32, 5, 2, 2), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten())
learner = BYOL(backbone, 32).to(device)
opt = torch.optim.AdamW([
    {"params": [p for n, p in learner.named_parameters() if p.ndim > 1], "weight_decay": 1e-4},
    {"params": [p for n, p in learner.named_parameters() if p.ndim <= 1], "weight_decay": 0.0},
], lr=1e-3)

t = torch.linspace(0, 1, 64)
freqs = torch.randint(1, 7, (256, 1)).float()
signals = torch.sin(2 * torch.pi * (freqs * t + torch.rand(256, 1))).unsqueeze(1)

total_steps = 32
losses = []
for step in range(total_steps):
    x = signals[torch.randint(0, 256, (32,))].to(device)
    learner.ema.beta = 1 - (1 - 0.98) * (1 - step / total_steps)
    loss = learner(jitter(x), jitter(x))
    opt.zero_grad()
    loss.backward()
    opt.step()
    learner.update_moving_average()
    losses.append(loss.item())
    if (step + 1) % 8 == 0:
        learner.eval()
        with torch.no_grad():
            h = F.normalize(learner.online(signals.to(device)), dim=1)
            collapse = h.std(dim=0).mean().item()   # goes to 0 when the features collapse
            nn_idx = (h @ h.t() - 2 * torch.eye(len(h), device=device)).argmax(1).cpu()
            knn = (freqs.squeeze(1)[nn_idx] == freqs.squeeze(1)).float().mean().item()
        learner.train()
        print(f"step {step + 1} loss {sum(losses[-8:]) / 8:.4f} beta {learner.ema.beta:.4f} std {collapse:.3f} 1-nn {knn:.3f}")
        if collapse < 1e-3:
            print("collapsed :(")
            break

torch.save(backbone.state_dict(), "byol_backbone.pt")
