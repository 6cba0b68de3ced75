# date format "translation": 12/03/1998 -> 12 mar 1998, char level, GRU + Bahdanau attention
import random
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

MONTHS = "jan feb mar apr may jun jul aug sep oct nov dec".split()
SOS, EOS = 0, 1
chars = sorted(set("0123456789/ " + "".join(MONTHS)))
stoi = {c: i + 2 for i, c in enumerate(chars)}
itos = {i: c for c, i in stoi.items()}
V = len(chars) + 2
MAX_LEN = 13
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

def make_pair():
    d, m, y = random.randint(1, 28), random.randint(1, 12), random.randint(1950, 2029)
    return f"{d:02d}/{m:02d}/{y}", f"{d} {MONTHS[m - 1]} {y}"

def to_tensor(s):
    return torch.tensor([stoi[c] for c in s] + [EOS], dtype=torch.long, device=device)

class EncoderRNN(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.embedding = nn.Embedding(V, hidden)
        self.gru = nn.GRU(hidden, hidden // 2, batch_first=True, bidirectional=True)

    def forward(self, x):
        out, h = self.gru(self.embedding(x))
        return out, torch.cat([h[0], h[1]], dim=-1).unsqueeze(0)

class AttnDecoder(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.embedding = nn.Embedding(V, hidden)
        self.Wa, self.Ua, self.Va = nn.Linear(hidden, hidden), nn.Linear(hidden, hidden), nn.Linear(hidden, 1)
        self.gru = nn.GRU(2 * hidden, hidden, batch_first=True)
        self.out = nn.Linear(hidden, V)

    def step(self, tok, hidden, enc):
        emb = self.embedding(tok)                                       # 1 x 1 x H
        scores = self.Va(torch.tanh(self.Wa(hidden.transpose(0, 1)) + self.Ua(enc))).transpose(1, 2)
        w = F.softmax(scores, dim=-1)
        o, hidden = self.gru(torch.cat([emb, w @ enc], dim=-1), hidden)
        return F.log_softmax(self.out(o[:, 0]), dim=-1), hidden, w

criterion = nn.NLLLoss()

def train_one(src, tgt, encoder, decoder, enc_opt, dec_opt, ratio):
    enc_opt.zero_grad()
    dec_opt.zero_grad()
    enc_out, hidden = encoder(src.unsqueeze(0))
    tok = torch.tensor([[SOS]], device=device)
    loss = 0
    whole_sequence = random.random() < ratio       # decide once per example
    for di in range(tgt.size(0)):
        logp, hidden, _ = decoder.step(tok, hidden, enc_out)
        loss += criterion(logp, tgt[di:di + 1])
        force = whole_sequence or torch.rand(1).item() < 0.3   # scheduled sampling per position
        if force:
            tok = tgt[di].view(1, 1)
        else:
            tok = logp.topk(1)[1].detach().view(1, 1)
            if tok.item() == EOS:
                break
    loss.backward()
    nn.utils.clip_grad_norm_(list(encoder.parameters()) + list(decoder.parameters()), 2.0)
    enc_opt.step()
    dec_opt.step()
    return loss.item() / (di + 1)

@torch.no_grad()
def translate(encoder, decoder, text):
    enc_out, hidden = encoder(to_tensor(text).unsqueeze(0))
    tok, result = torch.tensor([[SOS]], device=device), []
    for _ in range(MAX_LEN):
        logp, hidden, attn = decoder.step(tok, hidden, enc_out)
        tok = logp.argmax(dim=-1, keepdim=True)
        if tok.item() == EOS:
            break
        result.append(itos.get(tok.item(), "?"))
    return "".join(result)

def as_minutes(s):
    return "%dm %ds" % (s // 60, s % 60)

def train_iters(n_iters, print_every=25, lr=0.02, hidden=24):
    encoder, decoder = EncoderRNN(hidden).to(device), AttnDecoder(hidden).to(device)
    enc_opt = torch.optim.SGD(encoder.parameters(), lr=lr)
    dec_opt = torch.optim.SGD(decoder.parameters(), lr=lr)
    start, total = time.time(), 0
    for it in range(1, n_iters + 1):
        a, b = make_pair()
        total += train_one(to_tensor(a), to_tensor(b), encoder, decoder, enc_opt, dec_opt, ratio=max(0.3, 1 - it / n_iters))
        if it % print_every == 0:
            print("%s (%d %d%%) %.4f" % (as_minutes(time.time() - start), it, it / n_iters * 100, total / print_every))
            total = 0
            a, b = random.choice([make_pair() for _ in range(5)])
            print("   >", a, "=", b, "<", translate(encoder, decoder, a))
    return encoder, decoder

random.seed(3)
torch.manual_seed(3)
enc, dec = train_iters(100)
pairs = [make_pair() for _ in range(10)]
print("exact match:", sum(translate(enc, dec, a) == b for a, b in pairs), "of", len(pairs))
