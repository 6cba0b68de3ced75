import os
import struct
import wave

import numpy as np
import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)
np.random.seed(0)
SR = 4000
ALPHABET = "_abcde"  # 0 = blank
TONES = {"a": 300, "b": 500, "c": 800, "d": 1100, "e": 1500}
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def synth(word):
    chunks = []
    for ch in word:
        dur = np.random.uniform(0.06, 0.1)
        t = np.arange(int(SR * dur)) / SR
        chunks.append(np.sin(2 * np.pi * TONES[ch] * t))
        chunks.append(np.zeros(int(SR * 0.02)))
    x = np.concatenate(chunks) + 0.05 * np.random.randn(sum(len(c) for c in chunks))
    return np.clip(x * 0.5, -1, 1)


def make_corpus(root, n):
    os.makedirs(root, exist_ok=True)
    with open(os.path.join(root, "transcripts.tsv"), "w") as f:
        for i in range(n):
            word = "".join(np.random.choice(list(ALPHABET[1:]), size=np.random.randint(3, 7)))
            pcm = (synth(word) * 32767).astype("<i2")
            with wave.open(os.path.join(root, f"{i:04d}.wav"), "wb") as w:
                w.setparams((1, 2, SR, 0, "NONE", "not compressed"))
                w.writeframes(pcm.tobytes())
            f.write(f"{i:04d}.wav\t{word}\n")


class Speech(Dataset):
    def __init__(self, root):
        self.root = root
        self.rows = [l.rstrip("\n").split("\t") for l in open(os.path.join(root, "transcripts.tsv"))]
        self.window = torch.hann_window(128)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        fn, word = self.rows[i]
        with wave.open(os.path.join(self.root, fn), "rb") as w:
            raw = w.readframes(w.getnframes())
        wav = torch.tensor(struct.unpack(f"<{len(raw) // 2}h", raw), dtype=torch.float32) / 32768
        spec = torch.stft(wav, n_fft=128, hop_length=40, window=self.window, return_complex=True).abs()
        return torch.log1p(spec).t(), torch.tensor([ALPHABET.index(c) for c in word])


def collate(batch):
    xs, ys = zip(*batch)
    return (
        nn.utils.rnn.pad_sequence(xs, batch_first=True),
        torch.tensor([len(x) for x in xs]),
        torch.cat(ys),
        torch.tensor([len(y) for y in ys]),
    )


class AcousticModel(nn.Module):
    def __init__(self, feat=65, hid=48):
        super().__init__()
        self.conv = nn.Conv1d(feat, hid, 5, stride=2, padding=2)
        self.rnn = nn.GRU(hid, hid, batch_first=True, bidirectional=True)
        self.fc = nn.Linear(2 * hid, len(ALPHABET))

    def forward(self, x, lens):
        h = F.relu(self.conv(x.transpose(1, 2))).transpose(1, 2)
        h, _ = self.rnn(h)
        return F.log_softmax(self.fc(h), dim=-1), (lens + 1) // 2


def greedy(logp, n):
    best = logp[:n].argmax(-1).tolist()
    return "".join(ALPHABET[t] for k, t in enumerate(best) if t != 0 and (k == 0 or t != best[k - 1]))


def edit_distance(a, b):
    d = list(range(len(b) + 1))
    for i, ca in enumerate(a, 1):
        prev, d[0] = d[0], i
        for j, cb in enumerate(b, 1):
            prev, d[j] = d[j], min(d[j] + 1, d[j - 1] + 1, prev + (ca != cb))
    return d[-1]


make_corpus("train_wav", 64)
make_corpus("test_wav", 12)
train_dl = DataLoader(Speech("train_wav"), batch_size=8, shuffle=True, collate_fn=collate)
test_ds = Speech("test_wav")
model = AcousticModel().to(device)
ctc = nn.CTCLoss(blank=0, zero_infinity=True)
opt = torch.optim.AdamW(model.parameters(), lr=4e-3)
sched = torch.optim.lr_scheduler.OneCycleLR(opt, 6e-3, epochs=5, steps_per_epoch=len(train_dl))
for epoch in range(5):
    model.train()
    for i, (x, xl, y, yl) in enumerate(train_dl):
        logp, ol = model(x.to(device), xl)
        loss = ctc(logp.transpose(0, 1), y.to(device), ol, yl)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 3.0)
        opt.step()
        sched.step()
        if i % 4 == 0:
            print(f"epoch {epoch} [{i}/{len(train_dl)}] ctc {loss.item():.4f}")
    model.eval()
    errs = chars = 0
    with torch.no_grad():
        for k, (x, y) in enumerate(test_ds):
            logp, ol = model(x[None].to(device), torch.tensor([len(x)]))
            hyp, ref = greedy(logp[0].cpu(), int(ol[0])), test_ds.rows[k][1]
            errs += edit_distance(ref, hyp)
            chars += len(ref)
    print(f"epoch {epoch} CER {errs / chars:.3f}   last: {ref!r} -> {hyp!r}")
