# a decoder with a cache written by hand, as in many small repositories
import math

import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.n1, self.n2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.kept = None

    def forward(self, x, start):
        b, t, w = x.shape
        q, k, v = (y.view(b, t, self.heads, -1).transpose(1, 2) for y in self.qkv(self.n1(x)).chunk(3, -1))
        if start:
            k, v = torch.cat([self.kept[0], k], 2), torch.cat([self.kept[1], v], 2)
        self.kept = (k, v)
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
        if t > 1:
            scores = scores.masked_fill(torch.ones(t, t, dtype=torch.bool).triu(1), float("-inf"))
        x = x + self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(b, t, w))
        return x + self.down(F.gelu(self.up(self.n2(x))))


class Decoder(nn.Module):
    def __init__(self, words=200, width=64, depth=3, heads=4, longest=64):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(longest, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(depth))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

    def forward(self, ids, start=0):
        x = self.words(ids) + self.places(torch.arange(start, start + ids.shape[1]))
        for block in self.blocks:
            x = block(x, start)
        return self.head(self.norm(x[:, -1:]))


@torch.inference_mode()
def complete(model, ids, count):
    logits = model(ids)
    for position in range(ids.shape[1], ids.shape[1] + count):
        token = torch.multinomial(logits[:, -1].softmax(-1), 1)
        ids = torch.cat([ids, token], 1)
        if (token == 3).all():
            break
        logits = model(token, position)
    return ids


model = Decoder().eval()
for length in (6, 9, 5, 12, 8, 7):
    print(complete(model, torch.randint(4, 200, (2, length)), 10).shape)
