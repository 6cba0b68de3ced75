import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
for step in range(10):
    x = torch.randn(8, 16)
    loss = nn.functional.smooth_l1_loss(model(x), x)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(step, loss.item())
