import torch
from torch import nn
from torch.optim import lr_scheduler

torch.manual_seed(0)
model = nn.Linear(12, 3)
optimizer = torch.optim.AdamW([{"params": [model.weight], "lr": 1e-2}, {"params": [model.bias], "lr": 1e-3}])
warmup = lr_scheduler.LinearLR(optimizer, start_factor=0.1, total_iters=3)
cosine = lr_scheduler.CosineAnnealingWarmRestarts(optimizer, T_0=4)
scheduler = lr_scheduler.SequentialLR(optimizer, [warmup, cosine], milestones=[3])
plateau = lr_scheduler.ReduceLROnPlateau(optimizer, patience=1)

for epoch in range(4):
    losses = []
    for _ in range(3):
        x = torch.randn(16, 12)
        loss = nn.functional.cross_entropy(model(x), x[:, :3].argmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        scheduler.step()
    plateau.step(sum(losses) / 3)
    print(epoch, losses, [group["lr"] for group in optimizer.param_groups])
