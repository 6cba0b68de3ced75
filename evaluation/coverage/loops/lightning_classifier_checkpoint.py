"""Small image-ish classifier with Lightning. Logs val accuracy and keeps the two best checkpoints."""
import argparse
import os

import lightning as L
import torch
import torch.nn as nn
import torch.nn.functional as F
from lightning.pytorch.callbacks import LearningRateMonitor, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from torch.utils.data import DataLoader, TensorDataset, random_split


class BlobData(L.LightningDataModule):
    def __init__(self, n=400, batch_size=32, num_classes=4):
        super().__init__()
        self.save_hyperparameters()

    def setup(self, stage=None):
        g = torch.Generator().manual_seed(3)
        y = torch.randint(0, self.hparams.num_classes, (self.hparams.n,), generator=g)
        protos = torch.randn(self.hparams.num_classes, 1, 12, 12, generator=g)
        x = protos[y] + 0.7 * torch.randn(self.hparams.n, 1, 12, 12, generator=g)
        full = TensorDataset(x, y)
        self.train_set, self.val_set, self.test_set = random_split(full, [280, 60, 60], generator=g)

    def train_dataloader(self):
        return DataLoader(self.train_set, batch_size=self.hparams.batch_size, shuffle=True, drop_last=True)

    def val_dataloader(self):
        return DataLoader(self.val_set, batch_size=self.hparams.batch_size)

    def test_dataloader(self):
        return DataLoader(self.test_set, batch_size=self.hparams.batch_size)


class LitConvNet(L.LightningModule):
    def __init__(self, width=8, num_classes=4, lr=3e-3, weight_decay=1e-4):
        super().__init__()
        self.save_hyperparameters()
        self.net = nn.Sequential(
            nn.Conv2d(1, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(width, 2 * width, 3, padding=1), nn.ReLU(),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(),
            nn.Linear(2 * width, num_classes),
        )

    def forward(self, x):
        return self.net(x)

    def _shared_step(self, batch, name):
        x, y = batch
        logits = self(x)
        loss = F.cross_entropy(logits, y)
        acc = (logits.argmax(-1) == y).float().mean()
        self.log(f"{name}_loss", loss, prog_bar=True)
        self.log(f"{name}_acc", acc, prog_bar=True, on_epoch=True)
        return loss

    def training_step(self, batch, batch_idx):
        return self._shared_step(batch, "train")

    def validation_step(self, batch, batch_idx):
        self._shared_step(batch, "val")

    def test_step(self, batch, batch_idx):
        self._shared_step(batch, "test")

    def configure_optimizers(self):
        opt = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr, weight_decay=self.hparams.weight_decay)
        sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=int(self.trainer.estimated_stepping_batches))
        return {"optimizer": opt, "lr_scheduler": {"scheduler": sched, "interval": "step"}}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--max_steps", type=int, default=24)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--out", default="lightning_out")
    args = parser.parse_args()

    L.seed_everything(42, workers=True)
    ckpt = ModelCheckpoint(
        dirpath=os.path.join(args.out, "ckpts"), monitor="val_loss", mode="min",
        save_top_k=2, save_last=True, filename="{epoch}-{val_loss:.3f}",
    )
    trainer = L.Trainer(
        max_steps=args.max_steps,
        accelerator="auto",
        devices=1,
        num_sanity_val_steps=2,
        log_every_n_steps=4,
        gradient_clip_val=1.0,
        callbacks=[ckpt, LearningRateMonitor("step")],
        logger=CSVLogger(args.out, name="csv"),
        enable_progress_bar=False,
    )
    dm = BlobData()
    trainer.fit(LitConvNet(lr=args.lr), datamodule=dm)
    print("best checkpoint:", ckpt.best_model_path, "score:", float(ckpt.best_model_score))
    results = trainer.test(datamodule=dm, ckpt_path="best")
    print("test accuracy %.3f" % results[0]["test_acc"])


if __name__ == "__main__":
    main()
