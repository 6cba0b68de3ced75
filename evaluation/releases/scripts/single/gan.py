import torch
from torch import nn

torch.manual_seed(0)
latent = 8
generator = nn.Sequential(nn.Linear(latent, 32), nn.LeakyReLU(0.2), nn.Linear(32, 16), nn.Tanh())
discriminator = nn.Sequential(nn.Linear(16, 32), nn.LeakyReLU(0.2), nn.Dropout(0.3), nn.Linear(32, 1))
opt_g = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.999))
opt_d = torch.optim.Adam(discriminator.parameters(), lr=2e-4, betas=(0.5, 0.999))
bce = nn.BCEWithLogitsLoss()

for step in range(8):
    real = torch.randn(16, 16).tanh()
    ones, zeros = torch.ones(16, 1), torch.zeros(16, 1)

    opt_d.zero_grad()
    fake = generator(torch.randn(16, latent))
    loss_d = bce(discriminator(real), ones) + bce(discriminator(fake.detach()), zeros)
    loss_d.backward()
    opt_d.step()

    opt_g.zero_grad()
    loss_g = bce(discriminator(fake), ones)
    loss_g.backward()
    opt_g.step()
    print(f"[{step}] D {loss_d.item()} G {loss_g.item()}")
