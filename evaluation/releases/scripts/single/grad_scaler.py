"""Mixed precision as on a GPU; without one the scaler is switched off, as people write it."""

import torch
from torch import nn

torch.manual_seed(0)
use_amp = torch.cuda.is_available()
device = "cuda" if use_amp else "cpu"
model = nn.Sequential(nn.Conv1d(4, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 14, 2)).to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
scaler = torch.cuda.amp.GradScaler(enabled=use_amp)
for step in range(8):
    x, y = torch.randn(8, 4, 16, device=device), torch.randint(0, 2, (8,), device=device)
    optimizer.zero_grad()
    with torch.autocast(device, enabled=use_amp):
        loss = nn.functional.cross_entropy(model(x), y)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    print(step, loss.item(), scaler.get_scale())
