from argparse import ArgumentParser
from collections import OrderedDict

import lightning.pytorch as pl
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

class Generator(nn.Module):
    def __init__(self, latent_dim, out_dim):
        super().__init__()
        self.model = nn.Sequential(
            OrderedDict(
                fc1=nn.Linear(latent_dim, 32), act1=nn.LeakyReLU(0.2),
                fc2=nn.Linear(32, 64), bn=nn.BatchNorm1d(64), act2=nn.LeakyReLU(0.2),
                out=nn.Linear(64, out_dim), tanh=nn.Tanh(),
            )
        )

    def forward(self, z):
        return self.model(z)

class Critic(nn.Module):
    def __init__(self, in_dim):
        super().__init__()
        self.model = nn.Sequential(nn.Linear(in_dim, 64), nn.LeakyReLU(0.2), nn.Dropout(0.2), nn.Linear(64, 1))

    def forward(self, x):
        return self.model(x)

class GAN(pl.LightningModule):
    def __init__(self, latent_dim: int = 8, data_dim: int = 16, lr_g: float = 1e-3, lr_d: float = 5e-4, n_critic: int = 2):
        super().__init__()
        self.save_hyperparameters()
        self.automatic_optimization = False
        self.generator = Generator(latent_dim, data_dim)
        self.discriminator = Critic(data_dim)
        self.register_buffer("fixed_z", torch.randn(5, latent_dim))

    def forward(self, z):
        return self.generator(z)

    def adversarial_loss(self, logits, real: bool):
        target = torch.ones_like(logits) if real else torch.zeros_like(logits)
        return F.binary_cross_entropy_with_logits(logits, target)

    def training_step(self, batch, batch_idx):
        (real,) = batch
        opt_g, opt_d = self.optimizers()
        sched_g, sched_d = self.lr_schedulers()
        z = torch.randn(real.size(0), self.hparams.latent_dim).type_as(real)

        # discriminator
        self.toggle_optimizer(opt_d)
        fake = self(z).detach()
        d_loss = 0.5 * (self.adversarial_loss(self.discriminator(real), True)
                        + self.adversarial_loss(self.discriminator(fake), False))
        opt_d.zero_grad()
        self.manual_backward(d_loss)
        self.clip_gradients(opt_d, gradient_clip_val=1.0, gradient_clip_algorithm="norm")
        opt_d.step()
        self.untoggle_optimizer(opt_d)
        self.log("d_loss", d_loss, prog_bar=True)

        # generator, only now and then
        if (batch_idx + 1) % self.hparams.n_critic == 0:
            self.toggle_optimizer(opt_g)
            g_loss = self.adversarial_loss(self.discriminator(self(z)), True)
            opt_g.zero_grad()
            self.manual_backward(g_loss)
            opt_g.step()
            self.untoggle_optimizer(opt_g)
            self.log("g_loss", g_loss, prog_bar=True)

        if self.trainer.is_last_batch:
            sched_g.step()
            sched_d.step()

    def on_train_epoch_end(self):
        self.eval()
        with torch.no_grad():
            sample = self(self.fixed_z)
        self.train()
        m = self.trainer.callback_metrics
        self.print(f"epoch {self.current_epoch} d {m['d_loss']:.3f} g {m['g_loss']:.3f} "
                   f"sample mean {sample.mean().item():+.3f} std {sample.std().item():.3f}")

    def configure_optimizers(self):
        opt_g = torch.optim.Adam(self.generator.parameters(), lr=self.hparams.lr_g, betas=(0.5, 0.999))
        opt_d = torch.optim.Adam(self.discriminator.parameters(), lr=self.hparams.lr_d, betas=(0.5, 0.999))
        scheds = [torch.optim.lr_scheduler.ExponentialLR(o, gamma=0.9) for o in (opt_g, opt_d)]
        return [opt_g, opt_d], scheds

if __name__ == "__main__":
    p = ArgumentParser()
    p.add_argument("--epochs", default=3, type=int)
    p.add_argument("--batch_size", default=32, type=int)
    a = p.parse_args()
    pl.seed_everything(0)
    t = torch.linspace(0, 6.28, 16)
    waves = torch.sin(t[None] + 6.28 * torch.rand(320, 1)) * (0.3 + 0.6 * torch.rand(320, 1))
    loader = DataLoader(TensorDataset(waves), batch_size=a.batch_size, shuffle=True)
    trainer = pl.Trainer(max_epochs=a.epochs, accelerator="auto", devices=1, logger=False,
                         enable_progress_bar=False, enable_model_summary=False, default_root_dir="gan_runs")
    trainer.fit(GAN(), loader)
    trainer.save_checkpoint("gan_final.ckpt")
