import os
import numpy as np
import torch
from PIL import Image
from datasets import Dataset, Image as HFImage
from transformers import ViTConfig, ViTForImageClassification, Trainer, TrainingArguments

# --- make a little folder of pngs: three kinds of stripes
ROOT = "stripes"
CLASSES = ["horizontal", "vertical", "diagonal"]
rng = np.random.RandomState(0)
yy, xx = np.mgrid[0:32, 0:32]
paths, labels = [], []
for ci, c in enumerate(CLASSES):
    os.makedirs(os.path.join(ROOT, c), exist_ok=True)
    for i in range(30):
        phase, freq = rng.rand() * 6.28, 0.5 + rng.rand() * 0.5
        t = {"horizontal": yy, "vertical": xx, "diagonal": (xx + yy) / 1.4}[c]
        img = 127 + 100 * np.sin(t * freq + phase) + rng.randn(32, 32) * 15
        img = np.stack([img] * 3, -1).clip(0, 255).astype(np.uint8)
        path = os.path.join(ROOT, c, f"{i:03d}.png")
        Image.fromarray(img).save(path)
        paths.append(path)
        labels.append(ci)

ds = Dataset.from_dict({"image": paths, "label": labels}).cast_column("image", HFImage())
ds = ds.train_test_split(test_size=0.2, shuffle=True, seed=5)


def to_tensor(img):
    arr = np.asarray(img.convert("RGB"), dtype=np.float32) / 255.0
    return torch.from_numpy((arr - 0.5) / 0.5).permute(2, 0, 1)


def train_tf(batch):
    out = []
    for im in batch["image"]:
        t = to_tensor(im)
        if np.random.rand() < 0.3:
            t = t + 0.05 * torch.randn_like(t)
        out.append(t)
    return {"pixel_values": out, "label": batch["label"]}


def val_tf(batch):
    return {"pixel_values": [to_tensor(im) for im in batch["image"]], "label": batch["label"]}


train_ds = ds["train"].with_transform(train_tf)
val_ds = ds["test"].with_transform(val_tf)


def collate_fn(examples):
    pixel_values = torch.stack([e["pixel_values"] for e in examples])
    return {"pixel_values": pixel_values, "labels": torch.tensor([e["label"] for e in examples])}


model = ViTForImageClassification(
    ViTConfig(
        image_size=32,
        patch_size=8,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        num_labels=3,
        id2label={i: c for i, c in enumerate(CLASSES)},
        label2id={c: i for i, c in enumerate(CLASSES)},
    )
)

args = TrainingArguments(
    "vit_out",
    per_device_train_batch_size=12,
    per_device_eval_batch_size=16,
    num_train_epochs=3,
    learning_rate=2e-3,
    eval_strategy="epoch",
    save_strategy="no",
    logging_steps=4,
    remove_unused_columns=False,
    report_to="none",
)

trainer = Trainer(
    model=model,
    args=args,
    data_collator=collate_fn,
    train_dataset=train_ds,
    eval_dataset=val_ds,
    compute_metrics=lambda p: {"accuracy": float((p.predictions.argmax(1) == p.label_ids).mean())},
)
trainer.train()
metrics = trainer.evaluate()
trainer.log_metrics("eval", metrics)
print("accuracy %.3f" % metrics["eval_accuracy"])
