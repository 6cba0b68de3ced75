"""DLRM in small: sparse features through embedding bags, their interaction, and a top MLP."""

import torch
from torch import nn


class DLRM(nn.Module):
    def __init__(self, rows=(100, 50, 20), dim=8, dense=4):
        super().__init__()
        self.bags = nn.ModuleList(nn.EmbeddingBag(r, dim, mode="sum") for r in rows)
        self.bottom = nn.Sequential(nn.Linear(dense, 16), nn.ReLU(), nn.Linear(16, dim), nn.ReLU())
        pairs = (len(rows) + 1) * len(rows) // 2
        self.top = nn.Sequential(nn.Linear(dim + pairs, 16), nn.ReLU(), nn.Linear(16, 1))
        self.register_buffer("pairs", torch.tril_indices(len(rows) + 1, len(rows) + 1, offset=-1))

    def forward(self, dense, indices, offsets):
        x = self.bottom(dense)
        ly = [bag(i, o) for bag, i, o in zip(self.bags, indices, offsets)]
        t = torch.stack([x, *ly], dim=1)
        z = torch.bmm(t, t.transpose(1, 2))
        flat = z[:, self.pairs[0], self.pairs[1]]
        return self.top(torch.cat([x, flat], dim=1)).squeeze(1)


torch.manual_seed(7)
model = DLRM()
optimizer = torch.optim.Adagrad(model.parameters(), lr=0.05)
criterion = nn.BCEWithLogitsLoss()
for step in range(8):
    batch = 16
    dense = torch.rand(batch, 4)
    offsets = [torch.arange(0, batch * 3, 3) for _ in range(3)]
    indices = [torch.randint(0, r, (batch * 3,)) for r in (100, 50, 20)]
    click = (torch.rand(batch) > 0.7).float()
    optimizer.zero_grad()
    loss = criterion(model(dense, indices, offsets), click)
    loss.backward()
    optimizer.step()
    print(f"{step} {loss.item()}")
