#!/usr/bin/env python
"""Pretraining-style run: llama-ish config, activation checkpointing, bf16, accumulation."""

import argparse
import logging

import torch
from torch.utils.data import IterableDataset, Dataset
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments, set_seed

log = logging.getLogger(__name__)


class PackedStream(IterableDataset):
    """Endless stream of packed blocks of a noisy periodic signal."""

    def __init__(self, vocab, block, seed=0):
        self.vocab, self.block, self.seed = vocab, block, seed

    def __iter__(self):
        g = torch.Generator().manual_seed(self.seed)
        while True:
            period = int(torch.randint(2, 6, (1,), generator=g))
            motif = torch.randint(0, self.vocab, (period,), generator=g)
            ids = motif.repeat(self.block // period + 1)[: self.block]
            yield {"input_ids": ids, "labels": ids.clone()}


class FixedEval(Dataset):
    def __init__(self, stream, n):
        it = iter(stream)
        self.rows = [next(it) for _ in range(n)]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


class TokensSeen(TrainerCallback):
    def __init__(self, tokens_per_step):
        self.tps = tokens_per_step

    def on_log(self, args, state, control, logs=None, **kwargs):
        if state.is_world_process_zero and logs and "loss" in logs:
            log.info(
                "step %d  loss %.4f  lr %.2e  tokens %d",
                state.global_step,
                float(logs["loss"]),
                float(logs["learning_rate"]),
                state.global_step * self.tps,
            )


def get_args():
    p = argparse.ArgumentParser()
    p.add_argument("--block", type=int, default=48)
    p.add_argument("--vocab", type=int, default=128)
    p.add_argument("--steps", type=int, default=8)
    p.add_argument("--micro", type=int, default=4)
    p.add_argument("--accum", type=int, default=4)
    return p.parse_args()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    a = get_args()
    set_seed(0)
    cfg = LlamaConfig(
        vocab_size=a.vocab,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=a.block,
        use_cache=False,
    )
    model = LlamaForCausalLM(cfg)
    targs = TrainingArguments(
        output_dir="llama_ckpt",
        max_steps=a.steps,
        per_device_train_batch_size=a.micro,
        gradient_accumulation_steps=a.accum,
        gradient_checkpointing=True,
        gradient_checkpointing_kwargs={"use_reentrant": False},
        bf16=True,
        use_cpu=not torch.cuda.is_available(),
        learning_rate=3e-3,
        adam_beta2=0.95,
        max_grad_norm=1.0,
        lr_scheduler_type="cosine",
        warmup_steps=2,
        logging_steps=2,
        eval_strategy="steps",
        eval_steps=4,
        save_steps=4,
        save_total_limit=1,
        dataloader_num_workers=0,
        optim="adamw_torch",
        report_to="none",
    )
    trainer = Trainer(
        model=model,
        args=targs,
        train_dataset=PackedStream(a.vocab, a.block),
        eval_dataset=FixedEval(PackedStream(a.vocab, a.block, seed=99), 16),
        callbacks=[TokensSeen(a.micro * a.accum * a.block)],
    )
    trainer.train()
    log.info("done, history has %d entries", len(trainer.state.log_history))
