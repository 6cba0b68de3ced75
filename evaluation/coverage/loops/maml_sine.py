"""MAML on sinusoid regression. Inner loop with torch.func.functional_call + autograd.grad."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.func import functional_call

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"


class SineTask:
    def __init__(self):
        self.amp = torch.empty(1).uniform_(0.1, 5.0).item()
        self.phase = torch.empty(1).uniform_(0, math.pi).item()

    def sample(self, k):
        x = torch.empty(k, 1, device=device).uniform_(-5, 5)
        return x, self.amp * torch.sin(x + self.phase)


class Net(nn.Module):
    def __init__(self, h=40):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(1, h), nn.ReLU(), nn.Linear(h, h), nn.ReLU())
        self.out = nn.Linear(h, 1)

    def forward(self, x):
        return self.out(self.body(x))


class MAML:
    def __init__(self, net, inner_lr=0.01, outer_lr=1e-3, inner_steps=1, k=10, meta_batch=8, first_order=False):
        self.net, self.inner_lr, self.inner_steps = net, inner_lr, inner_steps
        self.k, self.meta_batch, self.first_order = k, meta_batch, first_order
        self.meta_opt = torch.optim.Adam(net.parameters(), lr=outer_lr)

    def adapt(self, params, x, y, steps, create_graph):
        for _ in range(steps):
            loss = F.mse_loss(functional_call(self.net, params, (x,)), y)
            grads = torch.autograd.grad(loss, list(params.values()), create_graph=create_graph)
            params = {n: p - self.inner_lr * g for (n, p), g in zip(params.items(), grads)}
        return params

    def meta_step(self):
        outer = 0.0
        for _ in range(self.meta_batch):
            task = SineTask()
            xs, ys = task.sample(self.k)
            xq, yq = task.sample(self.k)
            fast = self.adapt(dict(self.net.named_parameters()), xs, ys, self.inner_steps, not self.first_order)
            outer = outer + F.mse_loss(functional_call(self.net, fast, (xq,)), yq)
        outer = outer / self.meta_batch
        self.meta_opt.zero_grad()
        outer.backward()
        self.meta_opt.step()
        return outer.item()

    def evaluate(self, n_tasks=5, steps=5):
        pre, post = [], []
        for _ in range(n_tasks):
            task = SineTask()
            xs, ys = task.sample(self.k)
            xq, yq = task.sample(100)
            params = {n: p.detach().clone().requires_grad_() for n, p in self.net.named_parameters()}
            with torch.no_grad():
                pre.append(F.mse_loss(self.net(xq), yq).item())
            fast = self.adapt(params, xs, ys, steps, False)
            with torch.no_grad():
                post.append(F.mse_loss(functional_call(self.net, fast, (xq,)), yq).item())
        return sum(pre) / n_tasks, sum(post) / n_tasks


if __name__ == "__main__":
    learner = MAML(Net().to(device))
    avg = None
    for it in range(1, 41):
        loss = learner.meta_step()
        avg = loss if avg is None else 0.9 * avg + 0.1 * loss
        if it % 10 == 0:
            pre, post = learner.evaluate()
            print(f"iter {it:4d}  meta loss {avg:.3f}  eval before {pre:.3f} after adaptation {post:.3f}")
