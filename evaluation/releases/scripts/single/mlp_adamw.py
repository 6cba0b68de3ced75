import torch
from torch import nn

torch.manual_seed(0)
x = torch.randn(256, 20)
y = (x.sum(dim=1) > 0).long()

model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 2))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.01)
criterion = nn.CrossEntropyLoss()

for epoch in range(3):
    for start in range(0, len(x), 64):
        optimizer.zero_grad()
        loss = criterion(model(x[start : start + 64]), y[start : start + 64])
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch} loss {loss.item()}")

torch.save(model.state_dict(), "model.pt")
