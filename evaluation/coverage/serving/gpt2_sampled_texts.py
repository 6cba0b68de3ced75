# sample texts of several lengths from a small GPT-2
import torch
from transformers import GPT2Config, GPT2LMHeadModel

config = GPT2Config(n_layer=3, n_embd=64, n_head=4, vocab_size=300, n_positions=128, eos_token_id=299, bos_token_id=298)
model = GPT2LMHeadModel(config)
model.eval()
torch.manual_seed(1)
for length in (5, 9, 14, 7, 11, 6):
    prompt = torch.randint(0, 290, (1, length))
    out = model.generate(prompt, max_new_tokens=12, do_sample=True, top_k=20, temperature=0.8, pad_token_id=299)
    print(out[0].tolist())
