# scores of items for users, best first
import torch
from torch import nn


class TwoTowers(nn.Module):
    def __init__(self, users=500, items=900, width=32):
        super().__init__()
        self.user = nn.Sequential(nn.EmbeddingBag(users, width), nn.Linear(width, width), nn.ReLU())
        self.item = nn.Sequential(nn.Embedding(items, width), nn.Linear(width, width))

    def forward(self, visits, candidates):
        return (self.user(visits)[:, None] * self.item(candidates)).sum(-1)


model = TwoTowers().eval()
for _ in range(8):
    with torch.inference_mode():
        visits, candidates = torch.randint(0, 500, (4, 20)), torch.randint(0, 900, (4, 50))
        order = model(visits, candidates).sort(descending=True).indices
    print(order[0, :5].tolist())
