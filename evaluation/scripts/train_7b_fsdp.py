"""The model of `train_7b.py` over all ranks that a launcher starts, fully sharded (FSDP 2), as a script for GPUs."""

import os

import torch
import torch.distributed as dist
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from transformers import LlamaConfig, LlamaForCausalLM

dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
config = LlamaConfig(
    vocab_size=32000,
    hidden_size=4096,
    intermediate_size=11008,
    num_hidden_layers=32,
    num_attention_heads=32,
    num_key_value_heads=32,
)
model = LlamaForCausalLM(config).cuda()
precision = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
for layer in [*model.model.layers, model]:
    fully_shard(layer, mp_policy=precision)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
for step in range(1000):
    tokens = torch.randint(0, config.vocab_size, (1, 4096), device="cuda")
    loss = model(input_ids=tokens, labels=tokens).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if dist.get_rank() == 0:
        print(f"step {step} loss {loss.item():.3f}")
dist.destroy_process_group()
