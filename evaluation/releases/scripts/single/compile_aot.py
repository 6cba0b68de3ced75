import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(16)
        self.up, self.down = nn.Linear(16, 32), nn.Linear(32, 16)

    def forward(self, x):
        return x + self.down(F.silu(self.up(self.norm(x))))


torch.manual_seed(0)
model = Model()
model.compile(backend="aot_eager")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
for step in range(8):
    x = torch.randn(8, 16)
    loss = F.mse_loss(model(x), x.roll(1, 0))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(step, loss.item())
