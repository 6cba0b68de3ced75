"""Sentence embeddings: tiny BERT from scratch, masked mean pooling, in-batch negatives ranking loss, by hand."""
import os
import random

import numpy as np
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader
from transformers import BertConfig, BertModel, BertTokenizerFast, get_linear_schedule_with_warmup, set_seed

set_seed(42)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
OUT = "sbert_tiny"
os.makedirs(OUT, exist_ok=True)

SYN = {"big": "large", "car": "automobile", "buy": "purchase", "quick": "fast", "house": "home", "happy": "glad", "kid": "child", "begin": "start"}
FILL = ["the", "a", "my", "is", "was", "near", "and", "with", "very", "today"]
words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] + FILL + list(SYN) + list(SYN.values())
with open(os.path.join(OUT, "vocab.txt"), "w", encoding="utf-8") as fh:
    fh.write("\n".join(words))
tokenizer = BertTokenizerFast(vocab=os.path.join(OUT, "vocab.txt"), do_lower_case=True)

def make_pair():
    keys = random.sample(list(SYN), 3)
    a, b = [], []
    for k in keys:
        a += random.sample(FILL, random.randint(0, 2)) + [k]
        b += random.sample(FILL, random.randint(0, 2)) + [SYN[k]]
    return " ".join(a), " ".join(b)

config = BertConfig(vocab_size=len(tokenizer), hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
                    intermediate_size=64, max_position_embeddings=32)
model = BertModel(config, add_pooling_layer=False).to(device)

def mean_pooling(model_output, attention_mask):
    token_embeddings = model_output.last_hidden_state
    mask = attention_mask.unsqueeze(-1).expand(token_embeddings.size()).float()
    return torch.sum(token_embeddings * mask, 1) / torch.clamp(mask.sum(1), min=1e-9)

def embed(batch):
    batch = {k: v.to(device) for k, v in batch.items()}
    return mean_pooling(model(**batch), batch["attention_mask"])

def collate(pairs):
    a, b = zip(*pairs)
    tok = lambda t: tokenizer(list(t), padding=True, truncation=True, max_length=24, return_tensors="pt")
    return tok(a), tok(b)

def cos_sim(a, b):
    return F.normalize(a, dim=1) @ F.normalize(b, dim=1).T

class MultipleNegativesRankingLoss(torch.nn.Module):
    def __init__(self, scale=20.0):
        super().__init__()
        self.scale = scale
        self.ce = torch.nn.CrossEntropyLoss()

    def forward(self, a, b):
        scores = cos_sim(a, b) * self.scale
        return self.ce(scores, torch.arange(len(scores), device=scores.device))

train_pairs, dev_pairs = [make_pair() for _ in range(320)], [make_pair() for _ in range(40)]
loader = DataLoader(train_pairs, batch_size=32, shuffle=True, collate_fn=collate)
epochs = 3
param_optimizer = list(model.named_parameters())
no_decay = ["bias", "LayerNorm.bias", "LayerNorm.weight"]
optimizer = torch.optim.AdamW([
    {"params": [p for n, p in param_optimizer if not any(nd in n for nd in no_decay)], "weight_decay": 0.01},
    {"params": [p for n, p in param_optimizer if any(nd in n for nd in no_decay)], "weight_decay": 0.0},
], lr=2e-3)
scheduler = get_linear_schedule_with_warmup(optimizer, num_warmup_steps=3, num_training_steps=len(loader) * epochs)
loss_fct = MultipleNegativesRankingLoss()

def evaluate_mrr():
    model.eval()
    with torch.no_grad():
        a, b = collate(dev_pairs)
        sims = cos_sim(embed(a), embed(b)).cpu().numpy()
    model.train()
    ranks = [int(np.where(np.argsort(-row) == i)[0][0]) + 1 for i, row in enumerate(sims)]
    return float(np.mean([1 / r for r in ranks])), float(np.mean([r == 1 for r in ranks]))

best = -1
print("before: mrr %.3f acc@1 %.3f" % evaluate_mrr())
model.train()
for epoch in range(epochs):
    running = []
    for a, b in loader:
        loss = loss_fct(embed(a), embed(b))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
        running.append(loss.item())
    mrr, acc = evaluate_mrr()
    print(f"epoch {epoch}: loss {np.mean(running):.4f} mrr {mrr:.3f} acc@1 {acc:.3f} lr {scheduler.get_last_lr()[0]:.1e}")
    if mrr > best:
        best = mrr
        model.save_pretrained(OUT)
        tokenizer.save_pretrained(OUT)

model = BertModel.from_pretrained(OUT, add_pooling_layer=False).to(device).eval()
with torch.no_grad():
    e = embed(tokenizer(["the big car", "a large automobile", "my happy kid"], padding=True, return_tensors="pt"))
print("similarities", [round(v, 3) for v in cos_sim(e[:1], e[1:])[0].tolist()])
