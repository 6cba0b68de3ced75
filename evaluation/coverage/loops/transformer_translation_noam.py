import math
from collections import Counter
from timeit import default_timer as timer

import torch
import torch.nn as nn
from torch.nn import Transformer
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader

torch.manual_seed(0)
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
UNK, PAD, BOS, EOS = 0, 1, 2, 3
DIGITS = "zero one two three four five six seven eight nine".split()
GERMAN = "null eins zwei drei vier fuenf sechs sieben acht neun".split()

def make_corpus(n, seed):
    g = torch.Generator().manual_seed(seed)
    pairs = []
    for _ in range(n):
        k = int(torch.randint(2, 8, (1,), generator=g))
        d = torch.randint(0, 10, (k,), generator=g).tolist()
        pairs.append((" ".join(GERMAN[i] for i in d), " ".join(DIGITS[i] for i in reversed(d))))
    return pairs

def build_vocab(sentences):
    words = [w for w, _ in Counter(w for s in sentences for w in s.split()).most_common()]
    return {w: i for i, w in enumerate(["<unk>", "<pad>", "<bos>", "<eos>"] + words)}

train_pairs, val_pairs = make_corpus(320, 0), make_corpus(48, 1)
src_vocab, tgt_vocab = build_vocab(p[0] for p in train_pairs), build_vocab(p[1] for p in train_pairs)

def encode(s, vocab):
    return torch.tensor([BOS] + [vocab.get(w, UNK) for w in s.split()] + [EOS])

def collate_fn(batch):
    src = pad_sequence([encode(a, src_vocab) for a, _ in batch], padding_value=PAD)
    tgt = pad_sequence([encode(b, tgt_vocab) for _, b in batch], padding_value=PAD)
    return src, tgt

class PositionalEncoding(nn.Module):
    def __init__(self, emb, dropout, maxlen=64):
        super().__init__()
        den = torch.exp(-torch.arange(0, emb, 2) * math.log(10000) / emb)
        pos = torch.arange(0, maxlen).reshape(maxlen, 1)
        pe = torch.zeros((maxlen, emb))
        pe[:, 0::2] = torch.sin(pos * den)
        pe[:, 1::2] = torch.cos(pos * den)
        self.dropout = nn.Dropout(dropout)
        self.register_buffer("pe", pe.unsqueeze(-2))

    def forward(self, x):
        return self.dropout(x + self.pe[: x.size(0)])

class Seq2SeqTransformer(nn.Module):
    def __init__(self, emb=32, heads=4, layers=2, ff=64, dropout=0.1):
        super().__init__()
        self.emb = emb
        self.src_tok = nn.Embedding(len(src_vocab), emb)
        self.tgt_tok = nn.Embedding(len(tgt_vocab), emb)
        self.pos = PositionalEncoding(emb, dropout)
        self.transformer = Transformer(emb, heads, layers, layers, ff, dropout)
        self.generator = nn.Linear(emb, len(tgt_vocab))
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.xavier_uniform_(p)

    def embed(self, tok, x):
        return self.pos(tok(x.long()) * math.sqrt(self.emb))

    def forward(self, src, tgt):
        tgt_mask = self.transformer.generate_square_subsequent_mask(tgt.size(0), device=src.device).isinf()
        src_pad, tgt_pad = (src == PAD).t(), (tgt == PAD).t()
        out = self.transformer(self.embed(self.src_tok, src), self.embed(self.tgt_tok, tgt), None, tgt_mask, None,
                               src_pad, tgt_pad, src_pad)
        return self.generator(out)

class NoamOpt:
    """lr = factor * d^-0.5 * min(step^-0.5, step * warmup^-1.5)"""

    def __init__(self, d, factor, warmup, optimizer):
        self.d, self.factor, self.warmup, self.optimizer, self._step = d, factor, warmup, optimizer, 0

    def rate(self):
        return self.factor * self.d ** -0.5 * min(self._step ** -0.5, self._step * self.warmup ** -1.5)

    def step(self):
        self._step += 1
        for g in self.optimizer.param_groups:
            g["lr"] = self.rate()
        self.optimizer.step()

model = Seq2SeqTransformer().to(DEVICE)
loss_fn = nn.CrossEntropyLoss(ignore_index=PAD, label_smoothing=0.1)
opt = NoamOpt(32, 0.3, 20, torch.optim.Adam(model.parameters(), lr=0, betas=(0.9, 0.98), eps=1e-9))

def run_epoch(pairs, train):
    model.train(train)
    losses, correct, tokens = 0, 0, 0
    dl = DataLoader(pairs, batch_size=32, collate_fn=collate_fn, shuffle=train)
    for src, tgt in dl:
        src, tgt = src.to(DEVICE), tgt.to(DEVICE)
        with torch.set_grad_enabled(train):
            logits = model(src, tgt[:-1, :])
            gold = tgt[1:, :]
            loss = loss_fn(logits.reshape(-1, logits.shape[-1]), gold.reshape(-1))
        if train:
            opt.optimizer.zero_grad()
            loss.backward()
            opt.step()
        keep = gold != PAD
        correct += (logits.argmax(-1)[keep] == gold[keep]).sum().item()
        tokens += keep.sum().item()
        losses += loss.item()
    return losses / len(dl), correct / tokens

@torch.no_grad()
def greedy(sentence, max_len=12):
    model.eval()
    src = encode(sentence, src_vocab).view(-1, 1).to(DEVICE)
    ys = torch.full((1, 1), BOS, dtype=torch.long, device=DEVICE)
    for _ in range(max_len):
        nxt = model(src, ys)[-1, 0].argmax().item()
        ys = torch.cat([ys, torch.full((1, 1), nxt, dtype=torch.long, device=DEVICE)])
        if nxt == EOS:
            break
    inv = {i: w for w, i in tgt_vocab.items()}
    return " ".join(inv[i] for i in ys.flatten().tolist() if i > EOS)

for epoch in range(1, 5):
    t0 = timer()
    train_loss, _ = run_epoch(train_pairs, True)
    val_loss, val_acc = run_epoch(val_pairs, False)
    print(f"Epoch: {epoch}, Train loss: {train_loss:.3f}, Val loss: {val_loss:.3f}, token acc {val_acc:.3f}, lr {opt.rate():.4f}, {timer() - t0:.2f}s")
print(val_pairs[0][0], "->", greedy(val_pairs[0][0]))
