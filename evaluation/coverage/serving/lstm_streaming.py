# tag a stream, one value at a time, with a state that is carried on
import torch
from torch import nn


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.cells, self.tags = nn.LSTM(8, 32, 2, batch_first=True), nn.Linear(32, 4)

    def forward(self, x, state=None):
        hidden, state = self.cells(x, state)
        return self.tags(hidden), state


model, state = Tagger().eval(), None
with torch.no_grad():
    for _ in range(30):
        tag, state = model(torch.randn(1, 1, 8), state)
print(tag.argmax().item())
