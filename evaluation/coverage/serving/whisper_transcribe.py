# text of half a minute of sound at a time
import torch
from transformers import WhisperConfig, WhisperForConditionalGeneration

config = WhisperConfig(
    encoder_layers=2, decoder_layers=2, d_model=64, encoder_attention_heads=4, decoder_attention_heads=4,
    encoder_ffn_dim=128, decoder_ffn_dim=128, vocab_size=200, max_source_positions=50, max_target_positions=40,
    num_mel_bins=16, pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=3,
    suppress_tokens=None, begin_suppress_tokens=None,
)  # fmt: skip
model = WhisperForConditionalGeneration(config).eval()
for _ in range(5):
    with torch.no_grad():
        print(model.generate(torch.randn(1, 16, 100), max_new_tokens=10).tolist())
