import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Deep(nn.Module):
    def __init__(self, depth=4, width=24):
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Dropout(0.1), nn.LayerNorm(width))
            for _ in range(depth)
        )

    def forward(self, x):
        for layer in self.layers:
            x = x + checkpoint(layer, x, use_reentrant=False)
        return x


torch.manual_seed(0)
model = Deep()
optimizer = torch.optim.AdamW(model.parameters())
for step in range(8):
    x = torch.randn(6, 24)
    loss = model(x).pow(2).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(step, loss.item())
