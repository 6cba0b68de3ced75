import torch
from torch import nn

torch.manual_seed(0)
model = torch.compile(nn.Sequential(nn.Linear(8, 8), nn.GELU()))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


for step in range(8):
    x = torch.randn(4, 8)
    loss = model(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
