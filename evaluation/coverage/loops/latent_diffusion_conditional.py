"""Text(ish)-to-image in a latent space: first fit a tiny AutoencoderKL, freeze it, then a
cross-attention UNet on the scaled latents with 10% dropped conditions for guidance."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from diffusers import AutoencoderKL, DDPMScheduler, UNet2DConditionModel

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
COLORS = ["red", "green", "blue"]
POS = ["left", "right"]
VOCAB = {w: i for i, w in enumerate(["<null>", "a", "square"] + COLORS + POS)}

def render(caption):
    words = caption.split()
    img = -torch.ones(3, 16, 16)
    ch = COLORS.index(words[1])
    col = 1 if words[3] == "left" else 9
    img[ch, 5:11, col:col + 6] = 1.0
    return img + 0.05 * torch.randn_like(img)

def encode_text(captions):
    return torch.tensor([[VOCAB[w] for w in c.split()] for c in captions], device=device)

captions = [f"a {c} square {p}" for c in COLORS for p in POS]

def get_batch(bs):
    pick = torch.randint(len(captions), (bs,)).tolist()
    caps = [captions[i] for i in pick]
    return torch.stack([render(c) for c in caps]).to(device), caps

# ---------------------------------------------------------------- stage 1: autoencoder
vae = AutoencoderKL(in_channels=3, out_channels=3, latent_channels=2, block_out_channels=(8, 16), norm_num_groups=4,
                    down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2,
                    layers_per_block=1).to(device)
opt = torch.optim.Adam(vae.parameters(), lr=3e-3)
for it in range(15):
    x, _ = get_batch(12)
    posterior = vae.encode(x).latent_dist
    rec = vae.decode(posterior.sample()).sample
    rec_loss = F.l1_loss(rec, x)
    kl = posterior.kl().mean()
    loss = rec_loss + 1e-5 * kl
    opt.zero_grad(set_to_none=True)
    loss.backward()
    opt.step()
    if it % 5 == 4:
        print(f"[vae] it {it + 1} rec {rec_loss.item():.4f} kl {kl.item():.1f}")

vae.requires_grad_(False)
vae.eval()
with torch.no_grad():
    x, _ = get_batch(48)
    scaling = 1.0 / vae.encode(x).latent_dist.sample().flatten().std()
vae.register_to_config(scaling_factor=scaling.item())
print("latent scaling factor", vae.config.scaling_factor)

# ---------------------------------------------------------------- stage 2: denoiser
class WordEncoder(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.emb = nn.Embedding(len(VOCAB), dim)
        self.pos = nn.Parameter(0.02 * torch.randn(1, 4, dim))
        self.ln = nn.LayerNorm(dim)

    def forward(self, ids):
        return self.ln(self.emb(ids) + self.pos[:, : ids.shape[1]])

text_encoder = WordEncoder(16).to(device)
unet = UNet2DConditionModel(sample_size=8, in_channels=2, out_channels=2, layers_per_block=1, norm_num_groups=4,
                            block_out_channels=(8, 16), cross_attention_dim=16, attention_head_dim=4,
                            down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
                            up_block_types=("CrossAttnUpBlock2D", "UpBlock2D")).to(device)
sched = DDPMScheduler(num_train_timesteps=100, beta_start=1e-3, beta_end=0.05)
params = list(unet.parameters()) + list(text_encoder.parameters())
opt = torch.optim.AdamW(params, lr=2e-3)
ema_loss = None
for it in range(20):
    x, caps = get_batch(12)
    with torch.no_grad():
        z = vae.encode(x).latent_dist.sample() * vae.config.scaling_factor
    ids = encode_text(caps)
    drop = torch.rand(ids.size(0), device=device) < 0.1
    ids = torch.where(drop[:, None], torch.zeros_like(ids), ids)
    eps = torch.randn_like(z)
    t = torch.randint(0, sched.config.num_train_timesteps, (z.size(0),), device=device)
    pred = unet(sched.add_noise(z, eps, t), t, encoder_hidden_states=text_encoder(ids)).sample
    loss = F.mse_loss(pred, eps)
    opt.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(params, 1.0)
    opt.step()
    ema_loss = loss.item() if ema_loss is None else 0.9 * ema_loss + 0.1 * loss.item()
    if (it + 1) % 5 == 0:
        print(f"[unet] it {it + 1} loss {loss.item():.4f} smoothed {ema_loss:.4f}")

# sample with guidance
sched.set_timesteps(8)
cond = text_encoder(encode_text(["a red square left"]))
uncond = text_encoder(torch.zeros(1, 4, dtype=torch.long, device=device))
z = torch.randn(1, 2, 8, 8, device=device) * sched.init_noise_sigma
with torch.no_grad():
    for t in sched.timesteps:
        e_u, e_c = unet(torch.cat([z, z]), t, encoder_hidden_states=torch.cat([uncond, cond])).sample.chunk(2)
        z = sched.step(e_u + 3.0 * (e_c - e_u), t, z).prev_sample
    img = vae.decode(z / vae.config.scaling_factor).sample.clamp(-1, 1)
print("mean of R/G/B channels:", [round(v, 3) for v in img.mean(dim=(0, 2, 3)).tolist()])
torch.save({"unet": unet.state_dict(), "text": text_encoder.state_dict(), "vae": vae.state_dict()}, "ldm.pt")
