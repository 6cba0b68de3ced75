import torch
from torch import nn
from torch.optim.swa_utils import SWALR, AveragedModel, get_ema_multi_avg_fn, update_bn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 1))
ema = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
swa = AveragedModel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
swa_scheduler = SWALR(optimizer, swa_lr=0.05, anneal_epochs=2)
loader = [(x := torch.randn(16, 8), x.sum(1, keepdim=True)) for _ in range(3)]
for epoch in range(4):
    for x, y in loader:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        ema.update_parameters(model)
    if epoch >= 2:
        swa.update_parameters(model)
        swa_scheduler.step()
    print(epoch, loss.item())
update_bn(loader, swa)
print("swa", swa(loader[0][0]).sum().item(), "ema", sum(p.sum() for p in ema.parameters()).item())
