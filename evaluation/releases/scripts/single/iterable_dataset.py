import itertools
import random

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

CORPUS = "the quick brown fox jumps over the lazy dog while the band plays on and on "


class Windows(IterableDataset):
    def __init__(self, length):
        self.length = length
        self.letters = sorted(set(CORPUS))

    def __iter__(self):
        info = get_worker_info()
        chance = random.Random(info.id if info else 0)
        while True:
            at = chance.randrange(len(CORPUS) - self.length - 1)
            ids = torch.tensor([self.letters.index(c) for c in CORPUS[at : at + self.length + 1]])
            yield ids[:-1], ids[1:]


def collate(rows):
    x, y = zip(*rows)
    return torch.stack(x), torch.stack(y)


if __name__ == "__main__":
    torch.manual_seed(0)
    data = Windows(12)
    n = len(data.letters)
    embed, rnn, head = nn.Embedding(n, 16), nn.GRU(16, 16, batch_first=True), nn.Linear(16, n)
    params = itertools.chain(embed.parameters(), rnn.parameters(), head.parameters())
    optimizer = torch.optim.AdamW(params, lr=1e-2)
    for step, (x, y) in enumerate(itertools.islice(DataLoader(data, batch_size=8, collate_fn=collate), 9)):
        loss = nn.functional.cross_entropy(head(rnn(embed(x))[0]).flatten(0, 1), y.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(step, loss.item())
