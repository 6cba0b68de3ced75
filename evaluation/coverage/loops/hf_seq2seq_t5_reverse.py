# toy: teach a tiny T5 to reverse digit strings
import random
import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import T5Config, T5ForConditionalGeneration, Seq2SeqTrainer, Seq2SeqTrainingArguments

PAD, EOS = 0, 1
OFFSET = 2  # digit d -> d + 2


class ReverseDigits(Dataset):
    def __init__(self, n, seed, lo=3, hi=6):
        rnd = random.Random(seed)
        self.items = [[rnd.randint(0, 9) for _ in range(rnd.randint(lo, hi))] for _ in range(n)]

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        d = self.items[i]
        return {"input_ids": [x + OFFSET for x in d] + [EOS], "labels": [x + OFFSET for x in reversed(d)] + [EOS]}


def collate(features):
    src_len = max(len(f["input_ids"]) for f in features)
    tgt_len = max(len(f["labels"]) for f in features)
    batch = {"input_ids": [], "attention_mask": [], "labels": []}
    for f in features:
        pad = src_len - len(f["input_ids"])
        batch["input_ids"].append(f["input_ids"] + [PAD] * pad)
        batch["attention_mask"].append([1] * len(f["input_ids"]) + [0] * pad)
        batch["labels"].append(f["labels"] + [-100] * (tgt_len - len(f["labels"])))
    return {k: torch.tensor(v) for k, v in batch.items()}


def compute_metrics(p):
    preds, labels = p.predictions, p.label_ids
    if isinstance(preds, tuple):
        preds = preds[0]
    preds = np.where(preds < 0, PAD, preds)
    labels = np.where(labels == -100, PAD, labels)
    ok = 0
    for a, b in zip(preds, labels):
        a = [int(t) for t in a if t > EOS]
        b = [int(t) for t in b if t > EOS]
        ok += a == b
    lens = [np.count_nonzero(x != PAD) for x in preds]
    return {"exact_match": ok / len(labels), "gen_len": float(np.mean(lens))}


config = T5Config(
    vocab_size=12,
    d_model=32,
    d_kv=16,
    d_ff=64,
    num_layers=1,
    num_decoder_layers=1,
    num_heads=2,
    pad_token_id=PAD,
    eos_token_id=EOS,
    decoder_start_token_id=PAD,
    dropout_rate=0.0,
    feed_forward_proj="gated-gelu",
)
model = T5ForConditionalGeneration(config)

args = Seq2SeqTrainingArguments(
    output_dir="t5_reverse",
    per_device_train_batch_size=16,
    per_device_eval_batch_size=16,
    max_steps=24,
    learning_rate=1e-2,
    eval_strategy="steps",
    eval_steps=12,
    save_strategy="no",
    logging_steps=6,
    predict_with_generate=True,
    generation_max_length=9,
    generation_num_beams=1,
    label_smoothing_factor=0.0,
    report_to="none",
)
trainer = Seq2SeqTrainer(
    model=model,
    args=args,
    train_dataset=ReverseDigits(400, 0),
    eval_dataset=ReverseDigits(32, 1),
    data_collator=collate,
    compute_metrics=compute_metrics,
)
trainer.train()
out = trainer.predict(ReverseDigits(8, 2), metric_key_prefix="test")
for k, v in sorted(out.metrics.items()):
    print(f"{k:30s} {v}")
