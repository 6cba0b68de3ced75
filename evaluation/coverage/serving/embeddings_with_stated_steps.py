# an index of documents: one step is one document of several parts, which the script states itself
import torch
from transformers import AutoModel, BertConfig

import pharoah

session = pharoah.register()
model = AutoModel.from_config(
    BertConfig(num_hidden_layers=2, hidden_size=64, intermediate_size=128, num_attention_heads=4, vocab_size=300)
).eval()
index = []
session.step()
for parts in (3, 2, 5, 4, 1, 3, 2):
    with torch.no_grad():
        hidden = [model(torch.randint(0, 300, (1, 32))).last_hidden_state.mean(1) for _ in range(parts)]
    index.append(torch.cat(hidden).mean(0))
    session.step()
print(torch.stack(index).shape)
