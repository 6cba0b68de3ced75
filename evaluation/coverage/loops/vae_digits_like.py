import torch
import torch.utils.data
from torch import nn, optim
from torch.nn import functional as F

BATCH, EPOCHS, LATENT = 32, 3, 4
torch.manual_seed(1)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

# seven-segment "digits" on a 12x8 canvas
SEGMENTS = {0: "abcdef", 1: "bc", 2: "abged", 3: "abgcd", 4: "fgbc", 5: "afgcd", 6: "afgedc", 7: "abc", 8: "abcdefg", 9: "abfgcd"}

def draw(d):
    c = torch.zeros(12, 8)
    s = SEGMENTS[d]
    if "a" in s: c[1, 2:6] = 1
    if "g" in s: c[5, 2:6] = 1
    if "d" in s: c[10, 2:6] = 1
    if "f" in s: c[1:6, 1] = 1
    if "b" in s: c[1:6, 6] = 1
    if "e" in s: c[5:11, 1] = 1
    if "c" in s: c[5:11, 6] = 1
    return c

labels = torch.randint(0, 10, (352,))
images = torch.stack([draw(int(d)) for d in labels])
images = (images * 0.9 + 0.05 + 0.04 * torch.randn_like(images)).clamp(0, 1)
train_loader = torch.utils.data.DataLoader(list(zip(images[:288], labels[:288])), batch_size=BATCH, shuffle=True)
test_loader = torch.utils.data.DataLoader(list(zip(images[288:], labels[288:])), batch_size=BATCH)

class VAE(nn.Module):
    def __init__(self):
        super(VAE, self).__init__()
        self.fc1 = nn.Linear(96, 64)
        self.fc21 = nn.Linear(64, LATENT)
        self.fc22 = nn.Linear(64, LATENT)
        self.fc3 = nn.Linear(LATENT, 64)
        self.fc4 = nn.Linear(64, 96)

    def encode(self, x):
        h1 = F.relu(self.fc1(x))
        return self.fc21(h1), self.fc22(h1)

    def reparameterize(self, mu, logvar):
        std = torch.exp(0.5 * logvar)
        return mu + torch.randn_like(std) * std

    def decode(self, z):
        return torch.sigmoid(self.fc4(F.relu(self.fc3(z))))

    def forward(self, x):
        mu, logvar = self.encode(x.view(-1, 96))
        return self.decode(self.reparameterize(mu, logvar)), mu, logvar

model = VAE().to(device)
optimizer = optim.Adam(model.parameters(), lr=3e-3)

def loss_function(recon_x, x, mu, logvar, beta):
    bce = F.binary_cross_entropy(recon_x, x.view(-1, 96), reduction="sum")
    kld = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
    return bce + beta * kld, kld

def train(epoch):
    model.train()
    beta = min(1.0, epoch / 2)   # KL warmup
    train_loss = 0
    for batch_idx, (data, _) in enumerate(train_loader):
        data = data.to(device)
        optimizer.zero_grad()
        recon_batch, mu, logvar = model(data)
        loss, kld = loss_function(recon_batch, data, mu, logvar, beta)
        loss.backward()
        train_loss += loss.item()
        optimizer.step()
        if batch_idx % 4 == 0:
            print("Train Epoch: {} [{}/{} ({:.0f}%)]\tLoss: {:.4f}\tKL {:.3f}".format(
                epoch, batch_idx * len(data), len(train_loader.dataset),
                100.0 * batch_idx / len(train_loader), loss.item() / len(data), kld.item() / len(data)))
    print("====> Epoch: {} Average loss: {:.4f}".format(epoch, train_loss / len(train_loader.dataset)))

def test(epoch):
    model.eval()
    test_loss = 0
    zs, ys = [], []
    with torch.no_grad():
        for data, lab in test_loader:
            data = data.to(device)
            recon, mu, logvar = model(data)
            test_loss += loss_function(recon, data, mu, logvar, 1.0)[0].item()
            zs.append(mu.cpu())
            ys.append(lab)
    test_loss /= len(test_loader.dataset)
    z, y = torch.cat(zs), torch.cat(ys)
    spread = [z[y == k].mean(0).norm().item() for k in range(10) if (y == k).any()]
    print("====> Test set loss: {:.4f}, cluster radius {:.3f}".format(test_loss, sum(spread) / len(spread)))
    return test_loss

if __name__ == "__main__":
    print("initial test loss", test(0))
    for epoch in range(1, EPOCHS + 1):
        train(epoch)
        test(epoch)
        with torch.no_grad():
            sample = model.decode(torch.randn(2, LATENT, device=device)).cpu().view(2, 12, 8)
    for row in sample[0]:
        print("".join("#" if v > 0.5 else "." for v in row))
    torch.save(model.state_dict(), "vae.pt")
