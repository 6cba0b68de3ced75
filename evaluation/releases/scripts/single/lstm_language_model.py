import torch
from torch import nn


class LanguageModel(nn.Module):
    def __init__(self, vocabulary=50, width=32):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.lstm = nn.LSTM(width, width, num_layers=2, batch_first=True, dropout=0.1)
        self.decoder = nn.Linear(width, vocabulary)

    def forward(self, tokens, state=None):
        output, state = self.lstm(self.embedding(tokens), state)
        return self.decoder(output), state


torch.manual_seed(1)
data = torch.randint(0, 50, (4, 8 * 16 + 1))
model = LanguageModel()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
state = None
for step in range(8):
    chunk = data[:, step * 16 : (step + 1) * 16 + 1]
    if state is not None:
        state = tuple(part.detach() for part in state)
    logits, state = model(chunk[:, :-1], state)
    loss = nn.functional.cross_entropy(logits.reshape(-1, 50), chunk[:, 1:].reshape(-1))
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    optimizer.step()
    print(f"step {step}: perplexity {loss.exp().item()}")
