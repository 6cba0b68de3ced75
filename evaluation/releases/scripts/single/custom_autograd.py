import torch
from torch import nn


class Quantize(torch.autograd.Function):
    """Rounds in the forward pass, passes the gradient straight through where the input is within its range."""

    @staticmethod
    def forward(ctx, x, levels):
        ctx.save_for_backward(x)
        return torch.round(x.clamp(-1, 1) * levels) / levels

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * (x.abs() <= 1), None


class QuantLinear(nn.Linear):
    def forward(self, x):
        return nn.functional.linear(x, Quantize.apply(self.weight, 7), self.bias)


torch.manual_seed(0)
model = nn.Sequential(QuantLinear(16, 32), nn.Hardtanh(), QuantLinear(32, 4))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(8):
    x = torch.randn(16, 16)
    loss = nn.functional.cross_entropy(model(x), x[:, :4].argmax(1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
