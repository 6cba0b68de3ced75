import argparse
import math
import random

import torch
from peft import LoraConfig, PeftModel, TaskType, get_peft_model
from torch.utils.data import DataLoader, Dataset
from tqdm import tqdm
from transformers import LlamaConfig, LlamaForCausalLM, get_cosine_schedule_with_warmup

device = "cuda" if torch.cuda.is_available() else "cpu"
CHARS = "abcdefghijklmnopqrstuvwxyz .,:|"


def encode(s):
    return [CHARS.index(c) + 2 for c in s]


class Instr(Dataset):
    """'upper-ish' task: repeat a word twice"""

    def __init__(self, n, seed):
        rnd = random.Random(seed)
        self.rows = []
        for _ in range(n):
            w = "".join(rnd.choice(CHARS[:26]) for _ in range(rnd.randint(2, 5)))
            self.rows.append((encode(f"say {w} :"), encode(f"{w} {w}") + [1]))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


def collate(batch):
    width = max(len(a) + len(b) for a, b in batch)
    ids, mask, labels = [], [], []
    for a, b in batch:
        pad = width - len(a) - len(b)
        ids.append(a + b + [0] * pad)
        mask.append([1] * (len(a) + len(b)) + [0] * pad)
        labels.append([-100] * len(a) + b + [-100] * pad)
    return {"input_ids": torch.tensor(ids), "attention_mask": torch.tensor(mask), "labels": torch.tensor(labels)}


@torch.inference_mode()
def evaluate(model, loader):
    model.eval()
    tot = 0
    for batch in loader:
        batch = {k: v.to(device) for k, v in batch.items()}
        tot += model(**batch).loss.float()
    model.train()
    avg = tot / len(loader)
    return avg, torch.exp(avg)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--lr", type=float, default=1e-2)
    ap.add_argument("--epochs", type=int, default=2)
    ap.add_argument("--rank", type=int, default=4)
    args = ap.parse_args()
    torch.manual_seed(0)

    base = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(CHARS) + 2,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=2,
            max_position_embeddings=64,
            pad_token_id=0,
            bos_token_id=1,
            eos_token_id=1,
        )
    )
    base.save_pretrained("base_model")
    peft_config = LoraConfig(
        task_type=TaskType.CAUSAL_LM,
        r=args.rank,
        lora_alpha=16,
        lora_dropout=0.05,
        target_modules=["q_proj", "v_proj", "gate_proj"],
    )
    model = get_peft_model(base, peft_config)
    model.print_trainable_parameters()
    model = model.to(device)

    train_dl = DataLoader(Instr(128, 0), batch_size=16, shuffle=True, collate_fn=collate)
    val_dl = DataLoader(Instr(32, 1), batch_size=16, collate_fn=collate)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=args.lr)
    total = len(train_dl) * args.epochs
    sched = get_cosine_schedule_with_warmup(optimizer, num_warmup_steps=2, num_training_steps=total)

    best = math.inf
    for epoch in range(args.epochs):
        total_loss = 0
        for batch in tqdm(train_dl, desc=f"epoch {epoch}"):
            batch = {k: v.to(device) for k, v in batch.items()}
            loss = model(**batch).loss
            total_loss += loss.detach().float()
            loss.backward()
            optimizer.step()
            sched.step()
            optimizer.zero_grad()
        val, ppl = evaluate(model, val_dl)
        print(f"{epoch=}: train={total_loss / len(train_dl):.4f} val={val:.4f} ppl={ppl.item():.2f}")
        if val < best:
            best = val
            model.save_pretrained("lora_best")

    fresh = LlamaForCausalLM.from_pretrained("base_model")
    merged = PeftModel.from_pretrained(fresh, "lora_best").merge_and_unload().to(device)
    print("merged eval loss", evaluate(merged, val_dl)[0].item())


if __name__ == "__main__":
    main()
