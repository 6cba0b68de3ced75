import os
import random

import numpy as np
import torch
import torch.nn as nn
import torch.optim as optim
from PIL import Image

manualSeed = 999
random.seed(manualSeed)
torch.manual_seed(manualSeed)

dataroot = "data/blobs"
batch_size = 16
image_size = 16
nc, nz, ngf, ndf = 3, 24, 8, 8
num_epochs = 2
lr, beta1 = 0.0002, 0.5
ngpu = 1
device = torch.device("cuda:0" if (torch.cuda.is_available() and ngpu > 0) else "cpu")

# fake "faces": coloured circles
os.makedirs(dataroot, exist_ok=True)
yy, xx = np.mgrid[:image_size, :image_size]
for i in range(64):
    cx, cy, r = np.random.uniform(5, 11), np.random.uniform(5, 11), np.random.uniform(2, 5)
    m = ((xx - cx) ** 2 + (yy - cy) ** 2 < r * r)[..., None]
    im = np.where(m, np.random.randint(100, 255, 3), np.random.randint(0, 80, 3)).astype(np.uint8)
    Image.fromarray(im).save(f"{dataroot}/{i:04d}.png")


class Folder(torch.utils.data.Dataset):
    def __init__(self, root):
        self.files = sorted(os.path.join(root, f) for f in os.listdir(root) if f.endswith(".png"))

    def __len__(self):
        return len(self.files)

    def __getitem__(self, i):
        a = np.array(Image.open(self.files[i]).convert("RGB"), dtype=np.float32)
        return torch.from_numpy(a / 127.5 - 1).permute(2, 0, 1), 0


dataloader = torch.utils.data.DataLoader(Folder(dataroot), batch_size=batch_size, shuffle=True, num_workers=0)


def weights_init(m):
    classname = m.__class__.__name__
    if classname.find("Conv") != -1:
        nn.init.normal_(m.weight.data, 0.0, 0.02)
    elif classname.find("BatchNorm") != -1:
        nn.init.normal_(m.weight.data, 1.0, 0.02)
        nn.init.constant_(m.bias.data, 0)


netG = nn.Sequential(
    nn.ConvTranspose2d(nz, ngf * 2, 4, 1, 0, bias=False),
    nn.BatchNorm2d(ngf * 2),
    nn.ReLU(True),
    nn.ConvTranspose2d(ngf * 2, ngf, 4, 2, 1, bias=False),
    nn.BatchNorm2d(ngf),
    nn.ReLU(True),
    nn.ConvTranspose2d(ngf, nc, 4, 2, 1, bias=False),
    nn.Tanh(),
).to(device)
netD = nn.Sequential(
    nn.Conv2d(nc, ndf, 4, 2, 1, bias=False),
    nn.LeakyReLU(0.2, inplace=True),
    nn.Conv2d(ndf, ndf * 2, 4, 2, 1, bias=False),
    nn.BatchNorm2d(ndf * 2),
    nn.LeakyReLU(0.2, inplace=True),
    nn.Conv2d(ndf * 2, 1, 4, 1, 0, bias=False),
    nn.Sigmoid(),
).to(device)
netG.apply(weights_init)
netD.apply(weights_init)

criterion = nn.BCELoss()
fixed_noise = torch.randn(8, nz, 1, 1, device=device)
real_label, fake_label = 1.0, 0.0
optimizerD = optim.Adam(netD.parameters(), lr=lr, betas=(beta1, 0.999))
optimizerG = optim.Adam(netG.parameters(), lr=lr, betas=(beta1, 0.999))

G_losses, D_losses, iters = [], [], 0
print("Starting Training Loop...")
for epoch in range(num_epochs):
    for i, data in enumerate(dataloader, 0):
        # (1) D: real then fake
        netD.zero_grad()
        real = data[0].to(device)
        b_size = real.size(0)
        label = torch.full((b_size,), real_label, dtype=torch.float, device=device)
        output = netD(real).view(-1)
        errD_real = criterion(output, label)
        errD_real.backward()
        D_x = output.mean().item()

        noise = torch.randn(b_size, nz, 1, 1, device=device)
        fake = netG(noise)
        label.fill_(fake_label)
        output = netD(fake.detach()).view(-1)
        errD_fake = criterion(output, label)
        errD_fake.backward()
        D_G_z1 = output.mean().item()
        errD = errD_real + errD_fake
        optimizerD.step()

        # (2) G
        netG.zero_grad()
        label.fill_(real_label)
        output = netD(fake).view(-1)
        errG = criterion(output, label)
        errG.backward()
        D_G_z2 = output.mean().item()
        optimizerG.step()

        if i % 2 == 0:
            print(
                "[%d/%d][%d/%d]\tLoss_D: %.4f\tLoss_G: %.4f\tD(x): %.4f\tD(G(z)): %.4f / %.4f"
                % (epoch, num_epochs, i, len(dataloader), errD.item(), errG.item(), D_x, D_G_z1, D_G_z2)
            )
        G_losses.append(errG.item())
        D_losses.append(errD.item())
        if iters % 4 == 0 or (epoch == num_epochs - 1 and i == len(dataloader) - 1):
            with torch.no_grad():
                samples = netG(fixed_noise).detach().cpu()
            grid = torch.cat(list((samples + 1) * 127.5), dim=2).permute(1, 2, 0).numpy().astype(np.uint8)
            Image.fromarray(grid).save(f"samples_{iters:03d}.png")
        iters += 1
torch.save({"G": netG.state_dict(), "D": netD.state_dict()}, "dcgan.pth")
