# unconditional DDPM on toy 16x16 shapes, then sample a small grid
import argparse
import os

import numpy as np
import torch
import torch.nn.functional as F
from diffusers import DDPMPipeline, DDPMScheduler, UNet2DModel
from diffusers.optimization import get_cosine_schedule_with_warmup
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from tqdm.auto import tqdm


class ShapesOnDisk(Dataset):
    """Writes PNG files the first time, reads them back afterwards."""

    def __init__(self, root, n=96, size=16):
        os.makedirs(root, exist_ok=True)
        rng = np.random.RandomState(0)
        yy, xx = np.mgrid[:size, :size]
        self.files = []
        for i in range(n):
            path = os.path.join(root, f"{i:04d}.png")
            if not os.path.exists(path):
                cx, cy = rng.randint(4, size - 4, 2)
                r = rng.uniform(2, 5)
                disk = (xx - cx) ** 2 + (yy - cy) ** 2 < r * r
                img = np.full((size, size, 3), 20, np.uint8)
                img[disk] = rng.randint(80, 255, 3)
                Image.fromarray(img).save(path)
            self.files.append(path)

    def __len__(self):
        return len(self.files)

    def __getitem__(self, i):
        arr = np.asarray(Image.open(self.files[i]).convert("RGB"), dtype=np.float32)
        x = torch.from_numpy(arr).permute(2, 0, 1) / 127.5 - 1.0
        if torch.rand(1).item() < 0.5:
            x = x.flip(-1)
        return x


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--data_dir", default="shapes")
    p.add_argument("--output_dir", default="ddpm-out")
    p.add_argument("--train_batch_size", type=int, default=16)
    p.add_argument("--num_epochs", type=int, default=3)
    p.add_argument("--learning_rate", type=float, default=2e-3)
    p.add_argument("--lr_warmup_steps", type=int, default=4)
    p.add_argument("--prediction_type", choices=["epsilon", "sample", "v_prediction"], default="epsilon")
    p.add_argument("--seed", type=int, default=0)
    return p.parse_args()


def main():
    args = parse_args()
    torch.manual_seed(args.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    loader = DataLoader(ShapesOnDisk(args.data_dir), batch_size=args.train_batch_size, shuffle=True)
    model = UNet2DModel(
        sample_size=16, in_channels=3, out_channels=3, layers_per_block=1, norm_num_groups=4,
        block_out_channels=(8, 16), attention_head_dim=4,
        down_block_types=("DownBlock2D", "AttnDownBlock2D"), up_block_types=("AttnUpBlock2D", "UpBlock2D"),
    ).to(device)
    noise_scheduler = DDPMScheduler(num_train_timesteps=200, prediction_type=args.prediction_type)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.learning_rate, weight_decay=1e-2)
    lr_scheduler = get_cosine_schedule_with_warmup(optimizer, args.lr_warmup_steps, len(loader) * args.num_epochs)

    global_step = 0
    for epoch in range(args.num_epochs):
        model.train()
        bar = tqdm(loader, desc=f"epoch {epoch}")
        for clean in bar:
            clean = clean.to(device)
            noise = torch.randn_like(clean)
            t = torch.randint(0, noise_scheduler.config.num_train_timesteps, (clean.shape[0],), device=device).long()
            noisy = noise_scheduler.add_noise(clean, noise, t)
            pred = model(noisy, t, return_dict=False)[0]
            if args.prediction_type == "epsilon":
                target = noise
            elif args.prediction_type == "v_prediction":
                target = noise_scheduler.get_velocity(clean, noise, t)
            else:
                target = clean
            loss = F.mse_loss(pred, target)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            lr_scheduler.step()
            optimizer.zero_grad()
            global_step += 1
            bar.set_postfix(loss=loss.detach().item(), lr=lr_scheduler.get_last_lr()[0], step=global_step)

    pipe = DDPMPipeline(unet=model, scheduler=noise_scheduler)
    pipe.set_progress_bar_config(disable=True)
    images = pipe(batch_size=4, num_inference_steps=10, generator=torch.Generator("cpu").manual_seed(args.seed)).images
    grid = Image.new("RGB", (64, 16))
    for k, im in enumerate(images):
        grid.paste(im, (16 * k, 0))
    os.makedirs(args.output_dir, exist_ok=True)
    grid.save(os.path.join(args.output_dir, "samples.png"))
    pipe.save_pretrained(args.output_dir)


if __name__ == "__main__":
    main()
