import logging
import math
import os
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.logging import get_logger
from accelerate.utils import set_seed
from diffusers import DDIMScheduler, DDPMScheduler, UNet2DModel
from diffusers.optimization import get_scheduler
from diffusers.training_utils import EMAModel, compute_snr
from torch.utils.data import DataLoader, TensorDataset

logger = get_logger(__name__, log_level="INFO")

@dataclass
class Config:
    resolution: int = 8
    batch_size: int = 8
    grad_accum: int = 2
    epochs: int = 2
    lr: float = 1e-3
    snr_gamma: float = 5.0
    use_ema: bool = True
    checkpointing_steps: int = 5
    out: str = "ema_run"
    seed: int = 11

def make_images(cfg, n=112):
    base = torch.linspace(-1, 1, cfg.resolution)
    angle = torch.rand(n, 1, 1) * math.pi
    img = torch.cos(3 * (base[None, :, None] * angle.cos() + base[None, None, :] * angle.sin()))
    return img.unsqueeze(1)

def main(cfg: Config):
    accelerator = Accelerator(
        gradient_accumulation_steps=cfg.grad_accum,
        mixed_precision="fp16" if torch.cuda.is_available() else "no",
        project_dir=cfg.out,
    )
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)
    logger.info(accelerator.state, main_process_only=False)
    set_seed(cfg.seed)
    if accelerator.is_main_process:
        os.makedirs(cfg.out, exist_ok=True)

    unet = UNet2DModel(sample_size=cfg.resolution, in_channels=1, out_channels=1, layers_per_block=1,
                       block_out_channels=(8, 8), norm_num_groups=2,
                       down_block_types=("DownBlock2D", "DownBlock2D"), up_block_types=("UpBlock2D", "UpBlock2D"))
    ema = EMAModel(unet.parameters(), decay=0.99, use_ema_warmup=True, inv_gamma=1.0, power=0.75,
                   model_cls=UNet2DModel, model_config=unet.config) if cfg.use_ema else None
    noise_scheduler = DDPMScheduler(num_train_timesteps=100, beta_schedule="squaredcos_cap_v2")
    optimizer = torch.optim.AdamW(unet.parameters(), lr=cfg.lr)
    loader = DataLoader(TensorDataset(make_images(cfg)), batch_size=cfg.batch_size, shuffle=True)
    updates_per_epoch = math.ceil(len(loader) / cfg.grad_accum)
    lr_sched = get_scheduler("cosine", optimizer=optimizer, num_warmup_steps=2 * cfg.grad_accum,
                             num_training_steps=updates_per_epoch * cfg.epochs * cfg.grad_accum)
    unet, optimizer, loader, lr_sched = accelerator.prepare(unet, optimizer, loader, lr_sched)
    if ema is not None:
        ema.to(accelerator.device)
    accelerator.register_for_checkpointing(lr_sched)

    step, running = 0, 0.0
    for epoch in range(cfg.epochs):
        unet.train()
        for (x,) in loader:
            noise = torch.randn_like(x)
            t = torch.randint(0, noise_scheduler.config.num_train_timesteps, (x.size(0),), device=x.device)
            with accelerator.accumulate(unet):
                pred = unet(noise_scheduler.add_noise(x, noise, t), t).sample
                snr = compute_snr(noise_scheduler, t)
                w = torch.stack([snr, cfg.snr_gamma * torch.ones_like(t)], dim=1).min(dim=1)[0] / snr
                loss = (F.mse_loss(pred.float(), noise.float(), reduction="none").mean(dim=(1, 2, 3)) * w).mean()
                avg = accelerator.gather(loss.repeat(cfg.batch_size)).mean()
                running += avg.item() / cfg.grad_accum
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(unet.parameters(), 1.0)
                optimizer.step()
                lr_sched.step()
                optimizer.zero_grad()
            if accelerator.sync_gradients:
                step += 1
                if ema is not None:
                    ema.step(unet.parameters())
                logger.info(f"step {step} loss {running:.4f} ema decay {ema.cur_decay_value:.3f}")
                running = 0.0
                if step % cfg.checkpointing_steps == 0 and accelerator.is_main_process:
                    accelerator.save_state(os.path.join(cfg.out, f"checkpoint-{step}"))

    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        model = accelerator.unwrap_model(unet).eval()
        ema.store(model.parameters())
        ema.copy_to(model.parameters())
        ddim = DDIMScheduler.from_config(noise_scheduler.config)
        ddim.set_timesteps(5)
        x = torch.randn(2, 1, cfg.resolution, cfg.resolution, device=accelerator.device)
        with torch.no_grad():
            for t in ddim.timesteps:
                x = ddim.step(model(x, t).sample, t, x).prev_sample
        ema.restore(model.parameters())
        logger.info("sample range %.2f .. %.2f", x.min().item(), x.max().item())
        ema.save_pretrained(os.path.join(cfg.out, "unet_ema"))
    accelerator.end_training()

if __name__ == "__main__":
    main(Config())
