import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))
compiled = torch.compile(model, backend="eager")
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(8):
    x = torch.randn(8, 16)
    loss = (compiled(x).squeeze() - x.mean(1)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
