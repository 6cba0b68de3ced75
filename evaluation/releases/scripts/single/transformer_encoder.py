import torch
from torch import nn


class Classifier(nn.Module):
    def __init__(self, vocab=100, d_model=32, nhead=4, layers=2, classes=3):
        super().__init__()
        self.embed = nn.Embedding(vocab, d_model, padding_idx=0)
        layer = nn.TransformerEncoderLayer(d_model, nhead, dim_feedforward=64, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers)
        self.out = nn.Linear(d_model, classes)

    def forward(self, tokens):
        padding = tokens.eq(0)
        hidden = self.encoder(self.embed(tokens), src_key_padding_mask=padding)
        return self.out(hidden.mean(dim=1))


torch.manual_seed(0)
model = Classifier()
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4)
scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1e-3, total_steps=10)
tokens = torch.randint(1, 100, (16, 12))
tokens[:, 9:] = 0
labels = torch.randint(0, 3, (16,))
for step in range(10):
    loss = nn.functional.cross_entropy(model(tokens), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    scheduler.step()
    print(f"{step}\t{loss.item()}")
