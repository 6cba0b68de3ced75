import math
import time
from pathlib import Path

import torch
import torch.nn as nn
import torch.nn.functional as F
from lightning.fabric import Fabric
from torch.utils.data import DataLoader, Dataset

vocab_size = 40
block = 24
d_model = 32
n_head = 4
n_layer = 2
batch_size = 16
max_iters = 30
eval_every = 10
accum = 2
lr = 2e-3
ckpt_dir = Path("fabric_ckpt")

class CopyTask(Dataset):
    """first half random, second half repeats it"""

    def __init__(self, size, seed):
        g = torch.Generator().manual_seed(seed)
        half = torch.randint(1, vocab_size, (size, block // 2), generator=g)
        self.seqs = torch.cat([half, half], dim=1)

    def __len__(self):
        return self.seqs.size(0)

    def __getitem__(self, idx):
        s = self.seqs[idx]
        return s[:-1], s[1:]

class TinyLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok = nn.Embedding(vocab_size, d_model)
        self.pos = nn.Parameter(torch.zeros(1, block, d_model))
        layer = nn.TransformerEncoderLayer(d_model, n_head, 4 * d_model, dropout=0.0, batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(layer, n_layer, enable_nested_tensor=False)
        self.head = nn.Linear(d_model, vocab_size)

    def forward(self, idx):
        T = idx.size(1)
        mask = nn.Transformer.generate_square_subsequent_mask(T, device=idx.device)
        h = self.tok(idx) + self.pos[:, :T]
        return self.head(self.blocks(h, mask=mask, is_causal=True))

@torch.no_grad()
def evaluate(fabric, model, loader):
    model.eval()
    total, count = torch.zeros((), device=fabric.device), 0
    for x, y in loader:
        total += F.cross_entropy(model(x).flatten(0, 1), y.flatten(), reduction="sum")
        count += y.numel()
    model.train()
    return (total / count).item()

def main():
    fabric = Fabric(accelerator="auto", devices=1, precision="32-true")
    fabric.launch()
    fabric.seed_everything(1234)

    with fabric.init_module():
        model = TinyLM()
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, betas=(0.9, 0.95))
    model, optimizer = fabric.setup(model, optimizer)
    train_dl, val_dl = fabric.setup_dataloaders(
        DataLoader(CopyTask(512, 0), batch_size=batch_size, shuffle=True),
        DataLoader(CopyTask(64, 1), batch_size=batch_size),
    )
    fabric.print(f"{sum(p.numel() for p in model.parameters())} parameters")
    fabric.print("val loss before training", evaluate(fabric, model, val_dl))

    state = {"model": model, "optimizer": optimizer, "iter": 0, "step": 0}
    best = math.inf
    t0 = time.perf_counter()
    batches = iter(train_dl)
    while state["iter"] < max_iters:
        try:
            x, y = next(batches)
        except StopIteration:
            batches = iter(train_dl)
            x, y = next(batches)
        state["iter"] += 1
        accumulating = state["iter"] % accum != 0
        with fabric.no_backward_sync(model, enabled=accumulating):
            loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
            fabric.backward(loss / accum)
        if not accumulating:
            norm = fabric.clip_gradients(model, optimizer, max_norm=1.0)
            optimizer.step()
            optimizer.zero_grad()
            state["step"] += 1
        if state["iter"] % eval_every == 0:
            vl = evaluate(fabric, model, val_dl)
            dt = time.perf_counter() - t0
            fabric.print(f"iter {state['iter']:3d} train {loss.item():.3f} val {vl:.3f} gnorm {norm:.2f} {dt:.1f}s")
            if vl < best:
                best = vl
                fabric.save(ckpt_dir / "best.ckpt", state)
    fabric.load(ckpt_dir / "best.ckpt", state)
    fabric.print(f"reloaded step {state['step']}, val {evaluate(fabric, model, val_dl):.3f} (best {best:.3f})")

if __name__ == "__main__":
    main()
