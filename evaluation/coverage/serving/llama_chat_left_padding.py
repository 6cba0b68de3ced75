# answer batches of prompts of unequal length with a Llama, padded on the left
import torch
from transformers import LlamaConfig, LlamaForCausalLM

config = LlamaConfig(
    num_hidden_layers=2, hidden_size=64, intermediate_size=128, num_attention_heads=4, num_key_value_heads=2,
    vocab_size=300, max_position_embeddings=128, pad_token_id=0, bos_token_id=1, eos_token_id=2,
)  # fmt: skip
model = LlamaForCausalLM(config).eval()


def answer(prompts):
    longest = max(map(len, prompts))
    ids = torch.tensor([[0] * (longest - len(p)) + p for p in prompts])
    with torch.inference_mode():
        made = model.generate(ids, attention_mask=(ids != 0).long(), max_new_tokens=8, do_sample=False)
    return made[:, longest:]


for batch in range(6):
    prompts = [torch.randint(3, 300, (4 + batch + i,)).tolist() for i in range(3)]
    print(answer(prompts).shape)
