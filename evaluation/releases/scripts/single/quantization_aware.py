import warnings

import torch
from torch import nn
from torch.ao.nn.qat import Linear as QatLinear
from torch.ao.quantization import default_qat_qconfig

warnings.filterwarnings("ignore")
torch.manual_seed(0)
model = nn.Sequential(
    QatLinear(16, 32, qconfig=default_qat_qconfig), nn.ReLU(), QatLinear(32, 4, qconfig=default_qat_qconfig)
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for step in range(8):
    x = torch.randn(16, 16)
    loss = nn.functional.cross_entropy(model(x), x[:, :4].argmax(1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
