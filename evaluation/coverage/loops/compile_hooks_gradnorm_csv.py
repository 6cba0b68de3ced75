import csv
import os
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

seed = 99
steps = 30
eval_interval = 10
use_compile = os.environ.get("NO_COMPILE", "0") != "1"
device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(seed)
torch.set_float32_matmul_precision("high")


class ResidualMLP(nn.Module):
    def __init__(self, width=32, depth=2, d_in=12, d_out=3):
        super().__init__()
        self.stem = nn.Linear(d_in, width)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
            for _ in range(depth)
        )
        self.head = nn.Linear(width, d_out)

    def forward(self, x):
        x = self.stem(x)
        for b in self.blocks:
            x = x + b(x)
        return self.head(x)


raw_model = ResidualMLP().to(device)

activations = {}   # latest mean per layer


def make_hook(name):
    def hook(module, inputs, output):
        activations[name] = output.detach().mean()
    return hook


handles = [m.register_forward_hook(make_hook(n)) for n, m in raw_model.named_modules() if isinstance(m, (nn.Linear, nn.GELU))]
model = torch.compile(raw_model) if use_compile else raw_model

teacher = nn.Sequential(nn.Linear(12, 24), nn.Tanh(), nn.Linear(24, 3)).to(device).requires_grad_(False)


def get_batch(n=64):
    x = torch.randn(n, 12, device=device)
    return x, (3 * teacher(x)).argmax(dim=1)


optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3, weight_decay=0.01)
names = [n for n, _ in raw_model.named_parameters()]
val = get_batch(256)


@torch.no_grad()
def validate():
    raw_model.eval()
    out = raw_model(val[0])   # eager here, the other batch size would recompile
    raw_model.train()
    return F.cross_entropy(out, val[1]).item(), (out.argmax(1) == val[1]).float().mean().item()


best, start_acc = validate()
print(f"untrained: loss {best:.4f} acc {start_acc:.3f}, parameters {sum(p.numel() for p in raw_model.parameters())}")

with open("grad_norms.csv", "w", newline="") as fh:
    writer = csv.DictWriter(fh, fieldnames=["step", "loss", "total"] + names)
    writer.writeheader()
    t_last = time.time()
    for step in range(1, steps + 1):
        x, y = get_batch()
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        norms = {n: p.grad.norm(2).item() for n, p in raw_model.named_parameters() if p.grad is not None}
        total = sum(v ** 2 for v in norms.values()) ** 0.5
        if total > 5.0:
            for p in raw_model.parameters():
                p.grad.mul_(5.0 / total)
        optimizer.step()
        writer.writerow({"step": step, "loss": f"{loss.item():.6f}", "total": f"{total:.6f}", **{k: f"{v:.6f}" for k, v in norms.items()}})
        if step % eval_interval == 0:
            fh.flush()
            vloss, vacc = validate()
            dt, t_last = time.time() - t_last, time.time()
            print(f"step {step} loss {loss.item():.4f} grad {total:.3f} val {vloss:.4f} acc {vacc:.3f} ({dt / eval_interval * 1000:.1f} ms/step)")
            for name in sorted(activations):
                print("    %-16s activation mean %+.4f" % (name, activations[name].mean().item()))
            if vloss < best:
                best = vloss
                torch.save(raw_model.state_dict(), "compiled_best.pt")

for h in handles:
    h.remove()

with open("grad_norms.csv") as fh:
    rows = list(csv.DictReader(fh))
worst = max(rows, key=lambda r: float(r["total"]))
print(f"{len(rows)} rows, largest gradient at step {worst['step']}: {worst['total']}, best val {best:.4f}")
