import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(10, 20), nn.SiLU(), nn.Linear(20, 20), nn.SiLU(), nn.Linear(20, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4, foreach=True)
sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=10)
for i in range(10):
    x = torch.randn(32, 10)
    loss = (model(x).squeeze() - x.norm(dim=1)).abs().mean()
    opt.zero_grad(set_to_none=False)
    loss.backward()
    opt.step()
    sched.step()
    print(i, loss.item(), opt.param_groups[0]["lr"])
