import torch
from torch import nn
from torch.utils.checkpoint import checkpoint_sequential

torch.manual_seed(0)
body = nn.Sequential(*[m for _ in range(6) for m in (nn.Linear(16, 16), nn.Tanh())])
stem, head = nn.Linear(4, 16), nn.Linear(16, 1)
params = [*stem.parameters(), *body.parameters(), *head.parameters()]
optimizer = torch.optim.Adam(params, lr=1e-3)
for step in range(8):
    x = torch.randn(10, 4)
    hidden = checkpoint_sequential(body, 3, stem(x), use_reentrant=True)
    loss = (head(hidden).squeeze(1) - x.sum(1)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
