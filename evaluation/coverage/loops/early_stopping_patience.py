import numpy as np
import torch
import torch.nn as nn
from sklearn.datasets import make_regression
from sklearn.metrics import mean_absolute_error, r2_score
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from torch.utils.data import DataLoader, TensorDataset


class EarlyStopping:
    """Stops training when the validation loss has not improved for `patience` epochs."""

    def __init__(self, patience=5, delta=0.0, path="checkpoint.pt", verbose=True):
        self.patience, self.delta, self.path, self.verbose = patience, delta, path, verbose
        self.counter = 0
        self.best_score = None
        self.early_stop = False
        self.val_loss_min = np.inf

    def __call__(self, val_loss, model):
        score = -val_loss
        if self.best_score is None:
            self.best_score = score
            self.save_checkpoint(val_loss, model)
        elif score < self.best_score + self.delta:
            self.counter += 1
            print(f"EarlyStopping counter: {self.counter} out of {self.patience}")
            if self.counter >= self.patience:
                self.early_stop = True
        else:
            self.best_score = score
            self.save_checkpoint(val_loss, model)
            self.counter = 0

    def save_checkpoint(self, val_loss, model):
        if self.verbose:
            print(f"Validation loss decreased ({self.val_loss_min:.6f} --> {val_loss:.6f}).  Saving model ...")
        torch.save(model.state_dict(), self.path)
        self.val_loss_min = val_loss


device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(3)

X, y = make_regression(n_samples=300, n_features=12, n_informative=6, noise=20.0, random_state=3)
y = (y - y.mean()) / y.std()
Xtr, Xte, ytr, yte = train_test_split(X, y, test_size=0.2, random_state=0)
Xtr, Xva, ytr, yva = train_test_split(Xtr, ytr, test_size=0.25, random_state=0)
sc = StandardScaler().fit(Xtr)


def loader(a, b, shuffle=False):
    return DataLoader(
        TensorDataset(
            torch.tensor(sc.transform(a), dtype=torch.float32), torch.tensor(b, dtype=torch.float32).unsqueeze(1)
        ),
        batch_size=32,
        shuffle=shuffle,
    )


train_dl, val_dl, test_dl = loader(Xtr, ytr, True), loader(Xva, yva), loader(Xte, yte)

model = nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1)).to(device)
criterion = nn.MSELoss()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=2)
stopper = EarlyStopping(patience=4, delta=1e-3)

avg_train_losses, avg_valid_losses = [], []
for epoch in range(1, 41):
    train_losses, valid_losses = [], []
    model.train()
    for xb, yb in train_dl:
        xb, yb = xb.to(device), yb.to(device)
        optimizer.zero_grad()
        loss = criterion(model(xb), yb)
        loss.backward()
        optimizer.step()
        train_losses.append(loss.item())
    model.eval()
    with torch.no_grad():
        for xb, yb in val_dl:
            valid_losses.append(criterion(model(xb.to(device)), yb.to(device)).item())
    train_loss, valid_loss = np.average(train_losses), np.average(valid_losses)
    avg_train_losses.append(train_loss)
    avg_valid_losses.append(valid_loss)
    plateau.step(valid_loss)
    print(f"[{epoch:>2}/40] train_loss: {train_loss:.5f} valid_loss: {valid_loss:.5f}")
    stopper(valid_loss, model)
    if stopper.early_stop:
        print("Early stopping")
        break

model.load_state_dict(torch.load("checkpoint.pt", weights_only=True))
model.eval()
with torch.no_grad():
    pred = torch.cat([model(xb.to(device)).cpu() for xb, _ in test_dl]).numpy().ravel()
print(
    "best epoch", int(np.argmin(avg_valid_losses)) + 1, "MAE", mean_absolute_error(yte, pred), "R2", r2_score(yte, pred)
)
