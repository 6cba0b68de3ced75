import torch
from torch import nn

torch.manual_seed(0)


class SkipGram(nn.Module):
    def __init__(self, words, dim):
        super().__init__()
        self.center = nn.Embedding(words, dim, sparse=True)
        self.context = nn.Embedding(words, dim, sparse=True)

    def forward(self, center, context, negative):
        c = self.center(center)
        good = (c * self.context(context)).sum(-1)
        bad = torch.bmm(self.context(negative), c.unsqueeze(2)).squeeze(2)
        return -(nn.functional.logsigmoid(good) + nn.functional.logsigmoid(-bad).sum(1)).mean()


model = SkipGram(200, 16)
optimizer = torch.optim.SparseAdam(list(model.parameters()), lr=0.01)
for step in range(8):
    center, context = torch.randint(0, 200, (2, 32))
    negative = torch.randint(0, 200, (32, 5))
    loss = model(center, context, negative)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
