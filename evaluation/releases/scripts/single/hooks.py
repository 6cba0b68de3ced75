"""Activations and gradients are watched by hooks of the user's own, and written to a log."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 1))
seen = {}
handles = []
for name, module in model.named_modules():
    if isinstance(module, nn.Linear):
        handles.append(module.register_forward_hook(lambda m, i, o, n=name: seen.update({n: o.detach().std().item()})))
        handles.append(module.register_full_backward_hook(lambda m, i, o, n=name: seen.update({"g" + n: len(o)})))
for p in model.parameters():
    p.register_hook(lambda g: g.clamp(-0.1, 0.1))

optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
steps = []
optimizer.register_step_post_hook(lambda opt, args, kwargs: steps.append(len(steps)))
with open("activations.log", "w") as log:
    for step in range(8):
        x = torch.randn(16, 8)
        loss = nn.functional.l1_loss(model(x).squeeze(1), x.max(1).values)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        log.write(f"{step} {seen}\n")
        print(step, loss.item(), steps[-1])
for handle in handles:
    handle.remove()
