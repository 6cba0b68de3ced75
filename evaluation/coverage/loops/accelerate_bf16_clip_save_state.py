import math
import os
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.logging import get_logger
from accelerate.utils import ProjectConfiguration
from torch.utils.data import DataLoader, Dataset
from tqdm.auto import tqdm
import logging

logging.basicConfig(level=logging.INFO, format="%(asctime)s - %(levelname)s - %(message)s")
logger = get_logger(__name__)


class NoisyCopies(Dataset):
    """(noisy image, clean image) pairs of random rectangles"""

    def __init__(self, n, size=16):
        g = torch.Generator().manual_seed(n)
        self.clean = torch.zeros(n, 1, size, size)
        for i in range(n):
            a, b = sorted(torch.randint(0, size, (2,), generator=g).tolist())
            c, d = sorted(torch.randint(0, size, (2,), generator=g).tolist())
            self.clean[i, 0, a : b + 1, c : d + 1] = 1.0
        self.noisy = self.clean + 0.4 * torch.randn(self.clean.shape, generator=g)

    def __len__(self):
        return len(self.clean)

    def __getitem__(self, i):
        return {"noisy": self.noisy[i], "clean": self.clean[i]}


class Denoiser(nn.Module):
    def __init__(self, ch=16):
        super().__init__()
        self.down1, self.down2 = nn.Conv2d(1, ch, 3, padding=1), nn.Conv2d(ch, 2 * ch, 3, stride=2, padding=1)
        self.norm = nn.GroupNorm(4, 2 * ch)
        self.up = nn.ConvTranspose2d(2 * ch, ch, 2, stride=2)
        self.out = nn.Conv2d(2 * ch, 1, 3, padding=1)

    def forward(self, x):
        a = F.silu(self.down1(x))
        b = F.silu(self.norm(self.down2(a)))
        return self.out(torch.cat([self.up(b), a], 1))


def main():
    max_train_steps, accum, checkpointing_steps, max_grad_norm = 12, 2, 5, 1.0
    accelerator = Accelerator(
        gradient_accumulation_steps=accum,
        mixed_precision="bf16",
        project_config=ProjectConfiguration(project_dir="denoise", automatic_checkpoint_naming=False),
    )
    logger.info(accelerator.state, main_process_only=False)
    train_dl = DataLoader(NoisyCopies(96), batch_size=8, shuffle=True)
    val_dl = DataLoader(NoisyCopies(24), batch_size=8)
    model = Denoiser()
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=max_train_steps)
    model, opt, train_dl, val_dl, sched = accelerator.prepare(model, opt, train_dl, val_dl, sched)

    epochs = math.ceil(max_train_steps / math.ceil(len(train_dl) / accum))
    bar = tqdm(range(max_train_steps), disable=not accelerator.is_local_main_process)
    global_step, train_loss = 0, 0.0
    for epoch in range(epochs):
        model.train()
        for batch in train_dl:
            with accelerator.accumulate(model):
                pred = model(batch["noisy"])
                loss = F.mse_loss(pred.float(), batch["clean"].float(), reduction="mean")
                avg_loss = accelerator.gather(loss.repeat(8)).mean()
                train_loss += avg_loss.item() / accum
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), max_grad_norm)
                opt.step()
                sched.step()
                opt.zero_grad()
            if accelerator.sync_gradients:
                bar.update(1)
                global_step += 1
                accelerator.log({"train_loss": train_loss}, step=global_step)
                train_loss = 0.0
                if global_step % checkpointing_steps == 0 and accelerator.is_main_process:
                    path = os.path.join("denoise", f"checkpoint-{global_step}")
                    accelerator.save_state(path)
                    logger.info(f"Saved state to {path}")
            bar.set_postfix(step_loss=loss.detach().item(), lr=sched.get_last_lr()[0])
            if global_step >= max_train_steps:
                break
        model.eval()
        errs = []
        with torch.no_grad():
            for batch in val_dl:
                errs.append(
                    accelerator.gather_for_metrics(
                        F.mse_loss(model(batch["noisy"]).float(), batch["clean"], reduction="none").mean((1, 2, 3))
                    )
                )
        logger.info(f"epoch {epoch} val mse {torch.cat(errs).mean().item():.4f}")

    accelerator.wait_for_everyone()
    accelerator.load_state(os.path.join("denoise", "checkpoint-10"))
    unwrapped = accelerator.unwrap_model(model)
    accelerator.save(unwrapped.state_dict(), "denoise/final.pt")


if __name__ == "__main__":
    start = time.time()
    main()
    print(f"took {time.time() - start:.1f}s")
