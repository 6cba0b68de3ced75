import argparse
import math
import os
import random
import time

import torch
import torch.nn as nn

parser = argparse.ArgumentParser(description="word-level LSTM language model")
parser.add_argument("--data", type=str, default="./corpus")
parser.add_argument("--emsize", type=int, default=24)
parser.add_argument("--nhid", type=int, default=24)
parser.add_argument("--nlayers", type=int, default=2)
parser.add_argument("--lr", type=float, default=10)
parser.add_argument("--clip", type=float, default=0.25)
parser.add_argument("--epochs", type=int, default=4)
parser.add_argument("--batch_size", type=int, default=10)
parser.add_argument("--bptt", type=int, default=16)
parser.add_argument("--dropout", type=float, default=0.2)
parser.add_argument("--tied", action="store_true", default=True)
parser.add_argument("--seed", type=int, default=1111)
parser.add_argument("--log-interval", type=int, default=10)
parser.add_argument("--save", type=str, default="lm.pt")
args = parser.parse_args()

torch.manual_seed(args.seed)
random.seed(args.seed)
device = torch.device("cuda") if torch.cuda.is_available() else torch.device("cpu")

def write_corpus(folder):
    os.makedirs(folder)
    subj, verb, obj = ["the cat", "a dog", "my uncle", "the old man"], ["sees", "chases", "likes", "draws"], ["a bird", "the moon", "some cheese"]
    for name, n in (("train", 650), ("valid", 90), ("test", 90)):
        with open(os.path.join(folder, name + ".txt"), "w") as f:
            for _ in range(n):
                f.write(f"{random.choice(subj)} {random.choice(verb)} {random.choice(obj)}\n")

class Corpus:
    def __init__(self, path):
        self.word2idx = {}
        self.train, self.valid, self.test = (self.tokenize(os.path.join(path, f"{s}.txt")) for s in ("train", "valid", "test"))

    def tokenize(self, path):
        ids = []
        with open(path) as f:
            for line in f:
                for w in line.split() + ["<eos>"]:
                    ids.append(self.word2idx.setdefault(w, len(self.word2idx)))
        return torch.tensor(ids, dtype=torch.int64)

if not os.path.isdir(args.data):
    write_corpus(args.data)
corpus = Corpus(args.data)

def batchify(data, bsz):
    nbatch = data.size(0) // bsz
    return data.narrow(0, 0, nbatch * bsz).view(bsz, -1).t().contiguous().to(device)

train_data, val_data, test_data = batchify(corpus.train, args.batch_size), batchify(corpus.valid, 5), batchify(corpus.test, 5)

class RNNModel(nn.Module):
    def __init__(self, ntoken, ninp, nhid, nlayers, dropout, tie):
        super().__init__()
        self.drop = nn.Dropout(dropout)
        self.encoder = nn.Embedding(ntoken, ninp)
        self.rnn = nn.LSTM(ninp, nhid, nlayers, dropout=dropout)
        self.decoder = nn.Linear(nhid, ntoken)
        if tie:
            if nhid != ninp:
                raise ValueError("with --tied, nhid must equal emsize")
            self.decoder.weight = self.encoder.weight
        nn.init.uniform_(self.encoder.weight, -0.1, 0.1)
        nn.init.zeros_(self.decoder.bias)
        self.nhid, self.nlayers = nhid, nlayers

    def forward(self, x, hidden):
        out, hidden = self.rnn(self.drop(self.encoder(x)), hidden)
        return self.decoder(self.drop(out)).flatten(0, 1), hidden

    def init_hidden(self, bsz):
        w = next(self.parameters())
        return w.new_zeros(self.nlayers, bsz, self.nhid), w.new_zeros(self.nlayers, bsz, self.nhid)

ntokens = len(corpus.word2idx)
model = RNNModel(ntokens, args.emsize, args.nhid, args.nlayers, args.dropout, args.tied).to(device)
criterion = nn.CrossEntropyLoss()

def repackage_hidden(h):
    if isinstance(h, torch.Tensor):
        return h.detach()
    return tuple(repackage_hidden(v) for v in h)

def get_batch(source, i):
    seq_len = min(args.bptt, len(source) - 1 - i)
    return source[i:i + seq_len], source[i + 1:i + 1 + seq_len].reshape(-1)

def evaluate(source):
    model.eval()
    total = 0.0
    hidden = model.init_hidden(source.size(1))
    with torch.no_grad():
        for i in range(0, source.size(0) - 1, args.bptt):
            data, targets = get_batch(source, i)
            output, hidden = model(data, hidden)
            total += len(data) * criterion(output, targets).item()
    return total / (len(source) - 1)

def train(epoch, lr):
    model.train()
    total_loss, start = 0.0, time.time()
    hidden = model.init_hidden(args.batch_size)
    for batch, i in enumerate(range(0, train_data.size(0) - 1, args.bptt)):
        data, targets = get_batch(train_data, i)
        model.zero_grad()
        hidden = repackage_hidden(hidden)
        output, hidden = model(data, hidden)
        loss = criterion(output, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), args.clip)
        for p in model.parameters():
            p.data.add_(p.grad, alpha=-lr)
        total_loss += loss.item()
        if batch % args.log_interval == 0 and batch > 0:
            cur = total_loss / args.log_interval
            ms = (time.time() - start) * 1000 / args.log_interval
            print(f"| epoch {epoch:2d} | {batch:4d}/{len(train_data) // args.bptt:4d} batches | lr {lr:05.2f} | ms/batch {ms:5.2f} | loss {cur:5.2f} | ppl {math.exp(cur):8.2f}")
            total_loss, start = 0, time.time()

lr, best_val_loss = args.lr, None
try:
    for epoch in range(1, args.epochs + 1):
        train(epoch, lr)
        val_loss = evaluate(val_data)
        print(f"| end of epoch {epoch} | valid loss {val_loss:5.2f} | valid ppl {math.exp(val_loss):8.2f}")
        if not best_val_loss or val_loss < best_val_loss:
            torch.save(model.state_dict(), args.save)
            best_val_loss = val_loss
        else:
            lr /= 4.0   # anneal when the validation loss stops improving
except KeyboardInterrupt:
    print("Exiting from training early")

model.load_state_dict(torch.load(args.save))
test_loss = evaluate(test_data)
print(f"| End of training | test loss {test_loss:5.2f} | test ppl {math.exp(test_loss):8.2f}")
