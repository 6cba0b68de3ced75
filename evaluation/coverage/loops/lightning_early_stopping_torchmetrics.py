import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Callback, EarlyStopping
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchmetrics import MetricCollection
from torchmetrics.classification import BinaryAccuracy, BinaryAUROC, BinaryF1Score

pl.seed_everything(7)


class ChurnDataset(Dataset):
    """Fake customer churn table: 10 numeric columns plus one categorical one."""

    def __init__(self, n, seed):
        gen = torch.Generator().manual_seed(seed)
        self.num = torch.randn(n, 10, generator=gen)
        self.cat = torch.randint(0, 6, (n,), generator=gen)
        score = 1.5 * self.num[:, 0] - self.num[:, 1] * self.num[:, 2] + 0.4 * (self.cat - 2.5)
        self.label = (score + 0.3 * torch.randn(n, generator=gen) > 0).float()

    def __len__(self):
        return len(self.label)

    def __getitem__(self, i):
        return {"num": self.num[i], "cat": self.cat[i], "label": self.label[i]}


class ChurnModel(pl.LightningModule):
    def __init__(self, hidden=32, dropout=0.1, lr=5e-3):
        super().__init__()
        self.save_hyperparameters()
        self.emb = nn.Embedding(6, 4)
        self.mlp = nn.Sequential(
            nn.Linear(14, hidden), nn.GELU(), nn.Dropout(dropout), nn.Linear(hidden, hidden), nn.GELU(), nn.Linear(hidden, 1)
        )
        self.criterion = nn.BCEWithLogitsLoss()
        metrics = MetricCollection({"acc": BinaryAccuracy(), "f1": BinaryF1Score(), "auroc": BinaryAUROC()})
        self.train_acc = BinaryAccuracy()
        self.val_metrics = metrics.clone(prefix="val/")
        self.val_losses = []

    def forward(self, batch):
        return self.mlp(torch.cat([batch["num"], self.emb(batch["cat"])], dim=1)).squeeze(1)

    def training_step(self, batch, batch_idx):
        logits = self(batch)
        loss = self.criterion(logits, batch["label"])
        self.train_acc(logits.sigmoid(), batch["label"].int())
        self.log("train/loss", loss, on_step=True, on_epoch=True)
        self.log("train/acc", self.train_acc, on_step=False, on_epoch=True)
        return loss

    def validation_step(self, batch, batch_idx):
        logits = self(batch)
        loss = self.criterion(logits, batch["label"])
        self.val_losses.append(loss.detach())
        self.val_metrics.update(logits.sigmoid(), batch["label"].int())
        self.log("val/loss", loss, prog_bar=True, batch_size=len(logits))

    def on_validation_epoch_end(self):
        self.log_dict(self.val_metrics.compute())
        self.val_metrics.reset()
        mean = torch.stack(self.val_losses).mean()
        self.val_losses.clear()
        self.print(f"epoch {self.current_epoch}: val loss {mean:.4f}")

    def configure_optimizers(self):
        opt = torch.optim.Adam(self.parameters(), lr=self.hparams.lr)
        sch = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, factor=0.5, patience=1)
        return [opt], [{"scheduler": sch, "monitor": "val/loss", "interval": "epoch"}]


class HistoryCallback(Callback):
    def __init__(self):
        self.rows = []

    def on_train_epoch_end(self, trainer, pl_module):
        self.rows.append({k: v.item() for k, v in trainer.callback_metrics.items()})


train_loader = DataLoader(ChurnDataset(512, seed=0), batch_size=64, shuffle=True)
val_loader = DataLoader(ChurnDataset(192, seed=1), batch_size=64)

history = HistoryCallback()
stopper = EarlyStopping(monitor="val/loss", patience=2, min_delta=0.005, mode="min", verbose=True)
trainer = pl.Trainer(
    max_epochs=8,
    callbacks=[stopper, history],
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    accelerator="gpu" if torch.cuda.is_available() else "cpu",
    devices=1,
)
model = ChurnModel()
trainer.fit(model, train_loader, val_loader)

best = max(history.rows, key=lambda r: r["val/auroc"])
print(f"stopped at epoch {trainer.current_epoch} (patience hit: {stopper.stopped_epoch > 0})")
print("best auroc %.3f, f1 then %.3f" % (best["val/auroc"], best["val/f1"]))
