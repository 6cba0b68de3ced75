# GRPO on a toy model: the reward likes completions with many even digits and of a given length
import re

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers, decoders
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import GRPOConfig, GRPOTrainer

torch.manual_seed(0)

# one token per character
alphabet = list("0123456789 abcdefghijklmnopqrstuvwxyz:?")
vocab = {"<pad>": 0, "<bos>": 1, "<eos>": 2}
for ch in alphabet:
    vocab[ch] = len(vocab)
core = Tokenizer(models.WordLevel(vocab, unk_token="<pad>"))
core.pre_tokenizer = pre_tokenizers.Split("", "isolated")
core.decoder = decoders.Fuse()
tokenizer = PreTrainedTokenizerFast(
    tokenizer_object=core, pad_token="<pad>", bos_token="<bos>", eos_token="<eos>", padding_side="left"
)

config = LlamaConfig(
    vocab_size=len(vocab),
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=2,
    num_key_value_heads=2,
    max_position_embeddings=64,
    pad_token_id=0,
    bos_token_id=1,
    eos_token_id=2,
)
LlamaForCausalLM(config).save_pretrained("base")
tokenizer.save_pretrained("base")

prompts = [f"give even digits seed {i}:" for i in range(24)]
dataset = Dataset.from_dict({"prompt": prompts, "target_len": [6 + i % 3 for i in range(24)]})


def reward_even(completions, **kwargs):
    scores = []
    for c in completions:
        digits = re.findall(r"\d", c)
        even = sum(int(d) % 2 == 0 for d in digits)
        scores.append(even / max(len(c), 1))
    return scores


def reward_length(completions, target_len, **kwargs):
    return [-0.05 * abs(len(c) - t) for c, t in zip(completions, target_len)]


args = GRPOConfig(
    output_dir="grpo_out",
    per_device_train_batch_size=8,
    num_generations=4,
    max_completion_length=10,
    max_steps=6,
    learning_rate=3e-3,
    beta=0.02,
    temperature=1.0,
    logging_steps=1,
    save_strategy="no",
    bf16=False,
    gradient_checkpointing=False,
    report_to="none",
)

trainer = GRPOTrainer(
    model="base",
    reward_funcs=[reward_even, reward_length],
    args=args,
    train_dataset=dataset,
    processing_class=tokenizer,
)
trainer.train()

best = None
for h in trainer.state.log_history:
    if "reward" in h:
        if best is None or h["reward"] > best:
            best = h["reward"]
        print(f"step {h['step']} reward {h['reward']:.4f} std {h['reward_std']:.4f} kl {h.get('kl', 0.0):.5f}")
print("best mean reward", best)
