import math
import random

import torch
from datasets import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, default_data_collator, set_seed

set_seed(42)

VOCAB = 120
SEQ = 32


def synth_doc(r):
    # arithmetic-progression like token streams, easy to learn
    start, step = r.randrange(VOCAB), r.choice([1, 2, 3])
    return [(start + step * i) % VOCAB for i in range(r.randrange(20, 80))]


r = random.Random(0)
raw = Dataset.from_dict({"ids": [synth_doc(r) for _ in range(120)]})
raw = raw.train_test_split(test_size=0.15, seed=1)


def group_texts(examples):
    joined = sum(examples["ids"], [])
    total = (len(joined) // SEQ) * SEQ
    chunks = [joined[i : i + SEQ] for i in range(0, total, SEQ)]
    return {"input_ids": chunks, "attention_mask": [[1] * SEQ for _ in chunks], "labels": [c[:] for c in chunks]}


lm = raw.map(group_texts, batched=True, remove_columns=["ids"])
print(lm)

config = GPT2Config(vocab_size=VOCAB, n_positions=SEQ, n_embd=32, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0)
model = GPT2LMHeadModel(config)
print(f"{model.num_parameters() / 1e3:.0f}k params")

args = TrainingArguments(
    output_dir="gpt2-tiny",
    per_device_train_batch_size=8,
    per_device_eval_batch_size=8,
    num_train_epochs=2,
    learning_rate=5e-3,
    weight_decay=0.01,
    warmup_steps=3,
    lr_scheduler_type="cosine",
    eval_strategy="epoch",
    save_strategy="epoch",
    save_total_limit=1,
    logging_steps=5,
    report_to="none",
    disable_tqdm=True,
)

trainer = Trainer(
    model=model,
    args=args,
    train_dataset=lm["train"],
    eval_dataset=lm["test"],
    data_collator=default_data_collator,
)

result = trainer.train()
trainer.save_model()
metrics = result.metrics
metrics["train_samples"] = len(lm["train"])
trainer.log_metrics("train", metrics)
trainer.save_metrics("train", metrics)

ev = trainer.evaluate()
try:
    ppl = math.exp(ev["eval_loss"])
except OverflowError:
    ppl = float("inf")
print(f"perplexity: {ppl:.2f}")

model.eval()
prompt = torch.tensor([[3, 4, 5, 6]]).to(model.device)
print(model.generate(prompt, max_new_tokens=8, do_sample=False, pad_token_id=0)[0].tolist())
