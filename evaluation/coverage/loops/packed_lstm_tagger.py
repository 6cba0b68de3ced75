"""POS-like tagger; sentences are nested lists of different lengths; packed LSTM."""

import argparse
import json
import os
import random

import torch
import torch.nn as nn
from sklearn.metrics import f1_score
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence
from tqdm import trange

TAGS = ["<pad>", "DET", "NOUN", "VERB", "ADJ"]
LEX = {
    "DET": ["the", "a", "this", "every"],
    "NOUN": ["horse", "lamp", "run", "tree", "light", "song"],
    "VERB": ["run", "light", "sing", "watch"],
    "ADJ": ["light", "tall", "loud", "green"],
}


def np_phrase(r):
    seq = [(r.choice(LEX["DET"]), "DET")]
    for _ in range(r.randint(0, 3)):
        seq.append((r.choice(LEX["ADJ"]), "ADJ"))
    seq.append((r.choice(LEX["NOUN"]), "NOUN"))
    return seq


def write_data(path, n, seed):
    r = random.Random(seed)
    with open(path, "w") as f:
        for _ in range(n):
            s = np_phrase(r) + [(r.choice(LEX["VERB"]), "VERB")]
            if r.random() < 0.6:
                s += np_phrase(r)
            f.write(json.dumps({"words": [w for w, _ in s], "tags": [t for _, t in s]}) + "\n")


class Tagger(nn.Module):
    def __init__(self, vocab, dim, hidden, ntags):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim, padding_idx=0)
        self.lstm = nn.LSTM(dim, hidden, num_layers=1, bidirectional=True, batch_first=True)
        self.drop = nn.Dropout(0.2)
        self.out = nn.Linear(2 * hidden, ntags)

    def forward(self, x, lengths):
        packed = pack_padded_sequence(self.drop(self.emb(x)), lengths.cpu(), batch_first=True, enforce_sorted=False)
        h, _ = self.lstm(packed)
        h, _ = pad_packed_sequence(h, batch_first=True)
        return self.out(self.drop(h))


def batches(data, w2i, size, shuffle, device):
    idx = list(range(len(data)))
    if shuffle:
        random.shuffle(idx)
    for i in range(0, len(idx), size):
        rows = [data[j] for j in idx[i : i + size]]
        xs = [torch.tensor([w2i.get(w, 1) for w in r["words"]]) for r in rows]
        ys = [torch.tensor([TAGS.index(t) for t in r["tags"]]) for r in rows]
        lens = torch.tensor([len(x) for x in xs])
        yield pad_sequence(xs, batch_first=True).to(device), pad_sequence(ys, batch_first=True).to(device), lens


def evaluate(model, data, w2i, device):
    model.eval()
    gold, pred = [], []
    with torch.no_grad():
        for x, y, lens in batches(data, w2i, 16, False, device):
            p = model(x, lens).argmax(-1)
            for pi, yi, n in zip(p.tolist(), y.tolist(), lens.tolist()):
                gold.extend(yi[:n])
                pred.extend(pi[:n])
    return f1_score(gold, pred, average="macro")


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=4)
    ap.add_argument("--batch", type=int, default=16)
    ap.add_argument("--data", default="pos")
    a = ap.parse_args()
    random.seed(0), torch.manual_seed(0)
    os.makedirs(a.data, exist_ok=True)
    write_data(f"{a.data}/train.jsonl", 160, 0)
    write_data(f"{a.data}/dev.jsonl", 40, 1)
    train, dev = ([json.loads(l) for l in open(f"{a.data}/{s}.jsonl")] for s in ("train", "dev"))
    w2i = {"<pad>": 0, "<unk>": 1}
    for r in train:
        for w in r["words"]:
            w2i.setdefault(w, len(w2i))
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = Tagger(len(w2i), 16, 24, len(TAGS)).to(device)
    crit = nn.CrossEntropyLoss(ignore_index=0)
    opt = torch.optim.Adam(model.parameters(), lr=1e-2)
    print("untrained dev f1 %.3f" % evaluate(model, dev, w2i, device))
    best = -1.0
    for ep in (bar := trange(a.epochs)):
        model.train()
        tot = n_tok = 0
        for x, y, lens in batches(train, w2i, a.batch, True, device):
            opt.zero_grad()
            logits = model(x, lens)
            loss = crit(logits.reshape(-1, logits.shape[-1]), y.reshape(-1))
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            opt.step()
            tot += loss.item() * int(lens.sum())
            n_tok += int(lens.sum())
        f1 = evaluate(model, dev, w2i, device)
        bar.set_description(f"loss {tot / n_tok:.3f} f1 {f1:.3f}")
        if f1 > best:
            best = f1
            torch.save({"model": model.state_dict(), "vocab": w2i}, f"{a.data}/best.pt")
    print("best dev f1", best)


if __name__ == "__main__":
    main()
