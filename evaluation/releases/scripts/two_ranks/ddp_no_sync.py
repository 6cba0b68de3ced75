import contextlib

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group(backend="gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(rank)
model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.GELU(), nn.Linear(16, 2)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
ACCUMULATE = 3
for step in range(8):
    for micro in range(ACCUMULATE):
        x = torch.randn(4, 8)
        last = micro == ACCUMULATE - 1
        with contextlib.nullcontext() if last else model.no_sync():
            loss = nn.functional.cross_entropy(model(x), x[:, :2].argmax(1)) / ACCUMULATE
            loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    if rank == 0:
        print(step, loss.item(), flush=True)
dist.destroy_process_group()
