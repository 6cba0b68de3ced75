import torch
from torch import nn

torch.manual_seed(0)
t = torch.linspace(0, 6, 40).unsqueeze(1)
target = torch.sin(t)
net = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 1))
optimizer = torch.optim.LBFGS(net.parameters(), lr=0.5, max_iter=4, history_size=5)

for i in range(8):

    def closure():
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(net(t), target)
        loss.backward()
        return loss

    loss = optimizer.step(closure)
    print(f"iteration {i}: {loss.item()}")
