# sorting task with a tiny transformer, Trainer class with callbacks
import time
from collections import defaultdict

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, RandomSampler


class SortDataset(Dataset):
    """input: 0 0 2 1 0 1 -> output: 0 0 0 1 1 2, fed as one sequence"""

    def __init__(self, split, length=6, num_digits=3):
        self.split, self.length, self.num_digits = split, length, num_digits

    def __len__(self):
        return 2000

    def __getitem__(self, idx):
        while True:
            inp = torch.randint(self.num_digits, size=(self.length,), dtype=torch.long)
            h = hash(tuple(inp.tolist()))
            if ("test" if h % 4 == 0 else "train") == self.split:
                break
        cat = torch.cat((inp, torch.sort(inp)[0]), dim=0)
        x, y = cat[:-1].clone(), cat[1:].clone()
        y[: self.length - 1] = -1
        return x, y


class TinyTransformer(nn.Module):
    def __init__(self, vocab, block, d=48, heads=3, layers=2):
        super().__init__()
        self.emb = nn.Embedding(vocab, d)
        self.pos = nn.Parameter(torch.zeros(1, block, d))
        layer = nn.TransformerEncoderLayer(
            d, heads, 4 * d, dropout=0.0, batch_first=True, norm_first=True, activation="gelu"
        )
        self.enc = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(d, vocab)
        self.block = block

    def forward(self, idx, targets=None):
        t = idx.size(1)
        mask = torch.triu(torch.full((t, t), float("-inf"), device=idx.device), diagonal=1)
        h = self.enc(self.emb(idx) + self.pos[:, :t], mask=mask)
        logits = self.head(h)
        if targets is None:
            return logits, None
        return logits, F.cross_entropy(logits.reshape(-1, logits.size(-1)), targets.reshape(-1), ignore_index=-1)

    @torch.no_grad()
    def generate(self, idx, n):
        for _ in range(n):
            logits, _ = self(idx[:, -self.block :])
            idx = torch.cat([idx, logits[:, -1].argmax(-1, keepdim=True)], dim=1)
        return idx


class Trainer:
    def __init__(self, model, dataset, max_iters=60, batch_size=32, lr=2e-3, clip=1.0, device="auto"):
        self.callbacks = defaultdict(list)
        self.dataset, self.max_iters, self.batch_size, self.lr, self.clip = dataset, max_iters, batch_size, lr, clip
        self.device = ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device
        self.model = model.to(self.device)
        print("running on device", self.device)
        self.iter_num, self.iter_time, self.iter_dt = 0, 0.0, 0.0

    def add_callback(self, onevent, callback):
        self.callbacks[onevent].append(callback)

    def trigger_callbacks(self, onevent):
        for cb in self.callbacks.get(onevent, []):
            cb(self)

    def run(self):
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=self.lr, betas=(0.9, 0.95))
        loader = DataLoader(
            self.dataset,
            sampler=RandomSampler(self.dataset, replacement=True, num_samples=int(1e10)),
            shuffle=False,
            batch_size=self.batch_size,
            num_workers=0,
        )
        self.model.train()
        self.iter_time = time.time()
        data_iter = iter(loader)
        while True:
            x, y = [t.to(self.device) for t in next(data_iter)]
            _, self.loss = self.model(x, y)
            self.model.zero_grad(set_to_none=True)
            self.loss.backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
            self.optimizer.step()
            self.trigger_callbacks("on_batch_end")
            self.iter_num += 1
            now = time.time()
            self.iter_dt, self.iter_time = now - self.iter_time, now
            if self.max_iters is not None and self.iter_num >= self.max_iters:
                break


if __name__ == "__main__":
    torch.manual_seed(3407)
    train_ds, test_ds = SortDataset("train"), SortDataset("test")
    net = TinyTransformer(3, 2 * train_ds.length - 1)
    trainer = Trainer(net, train_ds)

    def batch_end(tr):
        if tr.iter_num % 10 == 0:
            print(f"iter_dt {tr.iter_dt * 1000:.2f}ms; iter {tr.iter_num}: train loss {tr.loss.item():.5f}")

    def quick_test(tr):
        if (tr.iter_num + 1) % 30 == 0:
            tr.model.eval()
            x = torch.stack([test_ds[i][0][:6] for i in range(50)]).to(tr.device)
            pred = tr.model.generate(x, 6)[:, 6:]
            correct = (pred == torch.sort(x)[0]).all(1).cpu()
            print("test final score: %d/%d = %.2f%% correct" % (correct.sum(), 50, 100 * correct.float().mean().item()))
            tr.model.train()

    trainer.add_callback("on_batch_end", batch_end)
    trainer.add_callback("on_batch_end", quick_test)
    trainer.run()
