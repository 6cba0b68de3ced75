# translate with beams
import torch
from transformers import T5Config, T5ForConditionalGeneration

model = T5ForConditionalGeneration(
    T5Config(num_layers=2, d_model=64, d_ff=128, num_heads=4, d_kv=16, vocab_size=200, decoder_start_token_id=0)
).eval()
for _ in range(5):
    sources = torch.randint(2, 190, (2, 12))
    print(model.generate(sources, num_beams=4, max_new_tokens=9, early_stopping=True).shape)
