# physics-informed network for the viscous Burgers equation u_t + u u_x = nu u_xx
import time
from functools import partial

import numpy as np
import torch

torch.set_default_dtype(torch.float64)
torch.manual_seed(1234)
np.random.seed(1234)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
nu = 0.02


class Net(torch.nn.Module):
    def __init__(self, layers):
        super().__init__()
        self.linears = torch.nn.ModuleList(torch.nn.Linear(a, b) for a, b in zip(layers[:-1], layers[1:]))
        for lin in self.linears:
            torch.nn.init.xavier_normal_(lin.weight)
            torch.nn.init.zeros_(lin.bias)

    def forward(self, x, t):
        h = torch.cat([x, t], dim=1)
        for lin in self.linears[:-1]:
            h = torch.tanh(lin(h))
        return self.linears[-1](h)


def latin_hypercube(n, dims):
    u = (np.arange(n)[:, None] + np.random.rand(n, dims)) / n
    for j in range(dims):
        np.random.shuffle(u[:, j])
    return u


class PINN:
    def __init__(self, n_f=300, n_u=40):
        self.net = Net([2, 20, 20, 20, 1]).to(device)
        X = latin_hypercube(n_f, 2)
        as_t = partial(torch.tensor, device=device)
        self.x_f = as_t(2 * X[:, :1] - 1, requires_grad=True)
        self.t_f = as_t(X[:, 1:], requires_grad=True)
        x0 = np.random.uniform(-1, 1, (n_u, 1))
        tb = np.random.uniform(0, 1, (n_u, 1))
        side = np.where(np.random.rand(n_u, 1) < 0.5, -1.0, 1.0)
        self.x_u = as_t(np.vstack([x0, side]))
        self.t_u = as_t(np.vstack([np.zeros_like(x0), tb]))
        self.u = as_t(np.vstack([-np.sin(np.pi * x0), np.zeros_like(tb)]))
        self.iter = 0
        self.adam = torch.optim.Adam(self.net.parameters(), lr=2e-3)
        self.lbfgs = torch.optim.LBFGS(self.net.parameters(), lr=1.0, max_iter=15, history_size=20, line_search_fn="strong_wolfe")

    def residual(self):
        u = self.net(self.x_f, self.t_f)
        ones = torch.ones_like(u)
        u_t = torch.autograd.grad(u, self.t_f, ones, create_graph=True, retain_graph=True)[0]
        u_x = torch.autograd.grad(u, self.x_f, ones, create_graph=True, retain_graph=True)[0]
        u_xx = torch.autograd.grad(u_x, self.x_f, torch.ones_like(u_x), create_graph=True)[0]
        return u_t + u * u_x - nu * u_xx

    def loss(self):
        loss_u = torch.mean((self.net(self.x_u, self.t_u) - self.u) ** 2)
        loss_f = torch.mean(self.residual() ** 2)
        self.iter += 1
        if self.iter % 20 == 0:
            print("Iter %d, Loss: %.4e, Loss_u: %.4e, Loss_f: %.4e" % (self.iter, (loss_u + loss_f).item(), loss_u.item(), loss_f.item()))
        return loss_u + 0.5 * loss_f

    def closure(self):
        self.lbfgs.zero_grad()
        loss = self.loss()
        loss.backward()
        return loss

    def train(self, n_adam):
        self.net.train()
        for epoch in range(n_adam):
            self.adam.zero_grad()
            loss = self.loss()
            loss.backward()
            self.adam.step()
            if loss.item() < 1e-5:
                break
        for _ in range(2):
            self.lbfgs.step(self.closure)

    @torch.no_grad()
    def predict(self, x, t):
        self.net.eval()
        return self.net(torch.as_tensor(x, device=device), torch.as_tensor(t, device=device)).cpu().numpy()


pinn = PINN()
t0 = time.time()
pinn.train(80)
print("training took %.2fs, %d evaluations" % (time.time() - t0, pinn.iter))
grid = np.linspace(-1, 1, 9)[:, None]
start = pinn.predict(grid, np.zeros_like(grid))
print("initial condition error: %.3f" % np.abs(start + np.sin(np.pi * grid)).max())
print("u(x, 0.5):", np.round(pinn.predict(grid, 0.5 * np.ones_like(grid)).ravel(), 3))
np.save("pinn_u0.npy", start)
