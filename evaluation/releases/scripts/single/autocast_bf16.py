import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 32))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
device_type = "cuda" if torch.cuda.is_available() else "cpu"
for step in range(8):
    x = torch.randn(8, 32)
    with torch.autocast(device_type=device_type, dtype=torch.bfloat16):
        out = model(x)
        loss = nn.functional.mse_loss(out.float(), x)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    print(step, out.dtype, loss.item())
