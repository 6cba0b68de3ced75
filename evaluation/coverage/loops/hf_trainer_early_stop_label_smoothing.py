"""Token classification (fake NER) with early stopping and smoothed labels."""

import random

import numpy as np
import torch
from transformers import BertConfig, BertForTokenClassification, EarlyStoppingCallback, Trainer, TrainingArguments

random.seed(13)
np.random.seed(13)
torch.manual_seed(13)

LABELS = ["O", "B-PER", "I-PER", "B-LOC"]
WORDS = (
    ["<pad>"]
    + [f"w{i}" for i in range(40)]
    + [f"first{i}" for i in range(6)]
    + [f"last{i}" for i in range(6)]
    + [f"city{i}" for i in range(6)]
)
W2I = {w: i for i, w in enumerate(WORDS)}


def sentence():
    toks, tags = [], []
    for _ in range(random.randint(4, 9)):
        u = random.random()
        if u < 0.15:
            toks += [f"first{random.randint(0, 5)}", f"last{random.randint(0, 5)}"]
            tags += [1, 2]
        elif u < 0.3:
            toks.append(f"city{random.randint(0, 5)}")
            tags.append(3)
        else:
            toks.append(f"w{random.randint(0, 39)}")
            tags.append(0)
    return toks, tags


class NERSet(torch.utils.data.Dataset):
    MAXLEN = 20

    def __init__(self, n):
        self.data = [sentence() for _ in range(n)]

    def __len__(self):
        return len(self.data)

    def __getitem__(self, idx):
        toks, tags = self.data[idx]
        ids = [W2I[t] for t in toks][: self.MAXLEN]
        tags = tags[: self.MAXLEN]
        pad = self.MAXLEN - len(ids)
        return {
            "input_ids": torch.tensor(ids + [0] * pad),
            "attention_mask": torch.tensor([1] * len(ids) + [0] * pad),
            "labels": torch.tensor(tags + [-100] * pad),
        }


def metrics(pred):
    y, p = pred.label_ids, pred.predictions.argmax(-1)
    keep = y != -100
    ent = keep & (y > 0)
    return {"acc": (p[keep] == y[keep]).mean(), "entity_recall": (p[ent] == y[ent]).mean()}


model = BertForTokenClassification(
    BertConfig(
        vocab_size=len(WORDS),
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=32,
        num_labels=len(LABELS),
    )
)
args = TrainingArguments(
    output_dir="ner",
    num_train_epochs=12,
    per_device_train_batch_size=16,
    learning_rate=5e-3,
    label_smoothing_factor=0.1,
    eval_strategy="steps",
    eval_steps=5,
    save_strategy="steps",
    save_steps=5,
    save_total_limit=1,
    load_best_model_at_end=True,
    metric_for_best_model="eval_loss",
    greater_is_better=False,
    lr_scheduler_type="linear",
    logging_strategy="steps",
    logging_steps=5,
    report_to="none",
    disable_tqdm=True,
)
trainer = Trainer(
    model=model,
    args=args,
    train_dataset=NERSet(128),
    eval_dataset=NERSet(32),
    compute_metrics=metrics,
    callbacks=[EarlyStoppingCallback(early_stopping_patience=2, early_stopping_threshold=1e-3)],
)
trainer.train()
print("stopped at step", trainer.state.global_step, "of", trainer.state.max_steps)
final = trainer.evaluate()
print({k: round(float(v), 4) for k, v in final.items() if "runtime" not in k})
