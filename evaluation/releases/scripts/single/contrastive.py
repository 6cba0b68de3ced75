"""Two encoders, a learned temperature, symmetric InfoNCE."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)


class Dual(nn.Module):
    def __init__(self):
        super().__init__()
        self.image = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2), nn.GELU(), nn.Flatten(), nn.Linear(8 * 7 * 7, 16))
        self.text = nn.Sequential(nn.EmbeddingBag(60, 16), nn.Linear(16, 16))
        self.logit_scale = nn.Parameter(torch.ones([]) * np.log(1 / 0.07))

    def forward(self, images, tokens):
        i = F.normalize(self.image(images), dim=-1)
        t = F.normalize(self.text(tokens), dim=-1)
        return self.logit_scale.exp() * i @ t.t()


model = Dual()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.98), eps=1e-6)
labels = torch.arange(8)
for step in range(8):
    logits = model(torch.randn(8, 3, 16, 16), torch.randint(0, 60, (8, 5)))
    loss = (F.cross_entropy(logits, labels) + F.cross_entropy(logits.t(), labels)) / 2
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        model.logit_scale.clamp_(0, np.log(100))
    print(step, loss.item())
