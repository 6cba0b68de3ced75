import torch
from torch import nn


class Residual(nn.Module):
    def __init__(self, width, groups=1):
        super().__init__()
        self.conv1 = nn.Conv2d(width, width, 3, padding=1, groups=groups, bias=False)
        self.norm1 = nn.GroupNorm(2, width)
        self.conv2 = nn.Conv2d(width, width, 1, bias=False)
        self.norm2 = nn.GroupNorm(2, width)

    def forward(self, x):
        out = torch.relu(self.norm1(self.conv1(x)))
        return torch.relu(x + self.norm2(self.conv2(out)))


torch.manual_seed(0)
model = nn.Sequential(
    nn.Conv2d(3, 8, 3, stride=2),
    Residual(8),
    Residual(8, groups=8),
    nn.AdaptiveAvgPool2d(1),
    nn.Flatten(),
    nn.Linear(8, 5),
).to(memory_format=torch.channels_last)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
for step in range(8):
    images = torch.randn(4, 3, 17, 17).to(memory_format=torch.channels_last)
    loss = nn.functional.cross_entropy(model(images), torch.randint(0, 5, (4,)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
