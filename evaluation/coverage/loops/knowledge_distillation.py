import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.utils.data import DataLoader, TensorDataset, random_split

torch.manual_seed(42)
device = torch.accelerator.current_accelerator().type if torch.accelerator.is_available() else "cpu"
print(f"Using {device} device")

T, soft_weight = 2.0, 0.5


def make_data(n=480, k=5):
    protos = torch.randn(k, 3, 16, 16)
    y = torch.randint(0, k, (n,))
    x = protos[y] * 0.6 + torch.randn(n, 3, 16, 16)
    return TensorDataset(x, y)


full = make_data()
train_set, test_set = random_split(full, [384, 96], generator=torch.Generator().manual_seed(1))
train_loader = DataLoader(train_set, batch_size=32, shuffle=True)
test_loader = DataLoader(test_set, batch_size=32)


class Teacher(nn.Module):
    def __init__(self, num_classes=5):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 32, 3, padding=1),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(32, 32, 3, padding=1),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(4),
        )
        self.classifier = nn.Sequential(nn.Linear(32 * 16, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, num_classes))

    def forward(self, x):
        return self.classifier(torch.flatten(self.features(x), 1))


class Student(nn.Module):
    def __init__(self, num_classes=5):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.fc = nn.Linear(8 * 8 * 8, num_classes)

    def forward(self, x):
        return self.fc(F.relu(self.conv(x)).flatten(1))


def train(model, loader, epochs, lr):
    opt = optim.Adam(model.parameters(), lr=lr)
    model.train()
    for ep in range(epochs):
        running = 0.0
        for x, y in loader:
            x, y = x.to(device), y.to(device)
            opt.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            opt.step()
            running += loss.item()
        print(f"Epoch {ep + 1}/{epochs}, Loss: {running / len(loader)}")


def distill(teacher, student, loader, epochs, lr):
    opt = optim.Adam(student.parameters(), lr=lr)
    teacher.eval()
    student.train()
    for ep in range(epochs):
        running = 0.0
        for x, y in loader:
            x, y = x.to(device), y.to(device)
            opt.zero_grad()
            with torch.no_grad():
                t_logits = teacher(x)
            s_logits = student(x)
            soft = F.kl_div(F.log_softmax(s_logits / T, -1), F.softmax(t_logits / T, -1), reduction="batchmean") * T * T
            loss = soft_weight * soft + (1 - soft_weight) * F.cross_entropy(s_logits, y)
            loss.backward()
            opt.step()
            running += loss.item()
        print(f"[KD] epoch {ep + 1}/{epochs} loss {running / len(loader):.4f}")


def test(model, loader):
    model.eval()
    correct = total = 0
    with torch.no_grad():
        for x, y in loader:
            x, y = x.to(device), y.to(device)
            _, pred = torch.max(model(x).data, 1)
            total += y.size(0)
            correct += (pred == y).sum().item()
    acc = 100 * correct / total
    print(f"Test accuracy: {acc:.2f}%")
    return acc


teacher = Teacher().to(device)
train(teacher, train_loader, 2, 1e-3)
acc_t = test(teacher, test_loader)

torch.manual_seed(7)
plain = Student().to(device)
kd = Student().to(device)
kd.load_state_dict(plain.state_dict())
print("same init:", torch.norm(plain.fc.weight - kd.fc.weight).item() == 0)
train(plain, train_loader, 2, 1e-3)
acc_p = test(plain, test_loader)
distill(teacher, kd, train_loader, 2, 1e-3)
acc_k = test(kd, test_loader)
print(f"teacher {acc_t:.2f} student {acc_p:.2f} distilled {acc_k:.2f}")
if acc_k > acc_p:
    print("distillation helped")
