# pictures from texts: text encoder, denoiser and decoder, with guidance
import torch
from diffusers import AutoencoderKL, DDIMScheduler, UNet2DConditionModel
from transformers import CLIPTextConfig, CLIPTextModel

texts = CLIPTextModel(
    CLIPTextConfig(
        hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2, vocab_size=100,
        max_position_embeddings=16,
    )
).eval()  # fmt: skip
denoiser = UNet2DConditionModel(
    sample_size=16, in_channels=4, out_channels=4, layers_per_block=1, block_out_channels=(32, 64),
    down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"), up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
    cross_attention_dim=32, attention_head_dim=8, norm_num_groups=8,
).eval()  # fmt: skip
decoder = AutoencoderKL(block_out_channels=(32,), norm_num_groups=8, latent_channels=4).eval()
scheduler = DDIMScheduler()
scheduler.set_timesteps(4)


@torch.no_grad()
def picture(prompt, guidance=7.5):
    wanted, empty = texts(prompt).last_hidden_state, texts(torch.zeros_like(prompt)).last_hidden_state
    latents = torch.randn(1, 4, 16, 16)
    for t in scheduler.timesteps:
        noise = denoiser(torch.cat([latents] * 2), t, torch.cat([empty, wanted])).sample
        without, with_text = noise.chunk(2)
        latents = scheduler.step(without + guidance * (with_text - without), t, latents).prev_sample
    return (decoder.decode(latents / 0.18215).sample / 2 + 0.5).clamp(0, 1)


for _ in range(5):
    print(picture(torch.randint(0, 99, (1, 16))).shape)
