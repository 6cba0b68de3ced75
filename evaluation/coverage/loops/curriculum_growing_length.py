"""Learns to add two numbers written as digits; operands get longer each epoch.
Batches are padded to the longest example they contain."""
import argparse
import random
import sys
from functools import partial
from pathlib import Path

import torch
import torch.nn as nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, IterableDataset
from tqdm import trange

PAD = 12
CHARS = {c: i for i, c in enumerate("0123456789+=")}
IGNORE = -100

class AdditionStream(IterableDataset):
    def __init__(self, n, max_digits, seed):
        self.n, self.max_digits, self.seed = n, max_digits, seed

    def __iter__(self):
        rng = random.Random(self.seed)
        for _ in range(self.n):
            k = rng.randint(1, self.max_digits)
            a, b = rng.randrange(10 ** k), rng.randrange(10 ** k)
            question, answer = f"{a}+{b}=", str(a + b)[::-1]
            ids = torch.tensor([CHARS[c] for c in question + answer])
            labels = ids.clone()
            labels[: len(question)] = IGNORE
            yield {"input_ids": ids, "labels": labels}

def collate(rows, pad_to_multiple=1):
    ids = pad_sequence([r["input_ids"] for r in rows], batch_first=True, padding_value=PAD)
    labels = pad_sequence([r["labels"] for r in rows], batch_first=True, padding_value=IGNORE)
    extra = -ids.size(1) % pad_to_multiple
    if extra:
        ids = nn.functional.pad(ids, (0, extra), value=PAD)
        labels = nn.functional.pad(labels, (0, extra), value=IGNORE)
    return {"input_ids": ids, "labels": labels, "lengths": (ids != PAD).sum(1)}

class Block(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.h = h
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.o = nn.Linear(d, 3 * d, bias=False), nn.Linear(d, d)
        self.ff = nn.Sequential(nn.Linear(d, 4 * d), nn.SiLU(), nn.Linear(4 * d, d))

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, self.h, d // self.h).permute(2, 0, 3, 1, 4)
        a = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(a.transpose(1, 2).reshape(b, t, d))
        return x + self.ff(self.n2(x))

class Adder(nn.Module):
    def __init__(self, d=32, layers=2, max_len=32):
        super().__init__()
        self.emb = nn.Embedding(PAD + 1, d, padding_idx=PAD)
        self.pos = nn.Embedding(max_len, d)
        self.blocks = nn.ModuleList([Block(d, 4) for _ in range(layers)])
        self.head = nn.Linear(d, PAD)

    def forward(self, input_ids, labels=None):
        t = input_ids.size(1)
        x = self.emb(input_ids) + self.pos(torch.arange(t, device=input_ids.device))
        for blk in self.blocks:
            x = blk(x)
        logits = self.head(x)
        if labels is None:
            return logits
        loss = nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), ignore_index=IGNORE)
        return logits, loss

@torch.inference_mode()
def token_accuracy(model, digits, device):
    model.eval()
    hit = tot = 0
    for b in DataLoader(AdditionStream(40, digits, seed=10_000 + digits), batch_size=20, collate_fn=collate):
        pred = model(b["input_ids"].to(device))[:, :-1].argmax(-1).cpu()
        gold = b["labels"][:, 1:]
        m = gold != IGNORE
        hit += (pred[m] == gold[m]).sum().item()
        tot += m.sum().item()
    model.train()
    return hit / tot

def main(argv=None):
    ap = argparse.ArgumentParser(description=__doc__)
    ap.add_argument("--epochs", type=int, default=4)
    ap.add_argument("--per-epoch", type=int, default=160)
    ap.add_argument("--batch-size", type=int, default=16)
    ap.add_argument("--pad-multiple", type=int, default=4)
    ap.add_argument("--advance-below", type=float, default=2.2, help="go to longer numbers once the epoch loss is below this, or anyway after an epoch")
    ap.add_argument("--workdir", type=Path, default=Path("adder_run"))
    args = ap.parse_args(argv)
    args.workdir.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = Adder().to(device)
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
    sched = torch.optim.lr_scheduler.SequentialLR(opt, [
        torch.optim.lr_scheduler.LinearLR(opt, 0.1, total_iters=5),
        torch.optim.lr_scheduler.ExponentialLR(opt, 0.98)], milestones=[5])
    digits, widths = 1, []
    for epoch in trange(args.epochs, file=sys.stderr):
        total, n, longest = 0.0, 0, 0
        loader = DataLoader(AdditionStream(args.per_epoch, digits, seed=epoch), batch_size=args.batch_size,
                            collate_fn=partial(collate, pad_to_multiple=args.pad_multiple))
        for batch in loader:
            lengths = batch.pop("lengths")
            batch = {k: v.to(device) for k, v in batch.items()}
            longest = max(longest, int(lengths.max()))
            widths.append(batch["input_ids"].shape[1])
            _, loss = model(**batch)
            opt.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            sched.step()
            w = lengths.sum().item()
            total += loss.item() * w
            n += w
        mean = total / n
        print(f"epoch {epoch}: up to {digits} digits, longest {longest}, loss {mean:.3f}, token acc {token_accuracy(model, digits, device):.3f}")
        digits += 2 if mean < args.advance_below else 1
        torch.save({"model": model.state_dict(), "opt": opt.state_dict(), "digits": digits}, args.workdir / f"epoch{epoch}.pt")
    print("batch widths seen:", sorted(set(widths)))

if __name__ == "__main__":
    main()
