# how well a model expects a text: it computes losses and trains nothing
import math

import torch
from transformers import GPT2Config, GPT2LMHeadModel

model = GPT2LMHeadModel(GPT2Config(n_layer=2, n_embd=64, n_head=4, vocab_size=300, n_positions=64)).eval()
text = torch.randint(0, 300, (1, 400))
total, count = 0.0, 0
for start in range(0, 400 - 64, 32):
    window = text[:, start : start + 64]
    with torch.no_grad():
        loss = model(window, labels=window).loss
    total, count = total + loss.item() * 64, count + 64
print(math.exp(total / count))
