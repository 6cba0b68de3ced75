import argparse
import copy
import random

from datasets import Dataset
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM, set_seed
from trl import DPOConfig, DPOTrainer

POLITE = ["certainly , here you go", "of course , happy to help", "sure , let me explain", "yes , gladly"]
RUDE = ["no way", "go away now", "why do you ask", "not my problem"]
TOPICS = ["tea", "maps", "trains", "gloves", "paint", "soup"]


def make_pairs(n, rnd):
    rows = []
    for _ in range(n):
        t = rnd.choice(TOPICS)
        rows.append(
            {
                "prompt": f"user : show me about {t} bot : ",
                "chosen": rnd.choice(POLITE) + f" {t}",
                "rejected": rnd.choice(RUDE) + f" {t}",
            }
        )
    return Dataset.from_list(rows)


def word_tokenizer():
    words = set("user : show me about bot".split())
    for s in POLITE + RUDE + TOPICS:
        words |= set(s.split())
    vocab = {w: i for i, w in enumerate(["<pad>", "<unk>", "<eos>"] + sorted(words))}
    t = Tokenizer(WordLevel(vocab, unk_token="<unk>"))
    t.pre_tokenizer = WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=t, pad_token="<pad>", unk_token="<unk>", eos_token="<eos>", bos_token="<eos>"
    )


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--beta", type=float, default=0.1)
    ap.add_argument("--lr", type=float, default=2e-3)
    ap.add_argument("--steps", type=int, default=10)
    opt = ap.parse_args()

    set_seed(0)
    rnd = random.Random(0)
    tokenizer = word_tokenizer()
    policy = Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=len(tokenizer),
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=1,
            max_position_embeddings=64,
            pad_token_id=tokenizer.pad_token_id,
            eos_token_id=tokenizer.eos_token_id,
            bos_token_id=None,
        )
    )
    reference = copy.deepcopy(policy).eval()

    args = DPOConfig(
        output_dir="dpo",
        beta=opt.beta,
        learning_rate=opt.lr,
        max_steps=opt.steps,
        per_device_train_batch_size=4,
        per_device_eval_batch_size=4,
        gradient_accumulation_steps=2,
        gradient_checkpointing=False,
        max_length=32,
        logging_steps=2,
        eval_strategy="steps",
        eval_steps=5,
        save_strategy="no",
        bf16=False,
        report_to="none",
    )
    trainer = DPOTrainer(
        model=policy,
        ref_model=reference,
        args=args,
        train_dataset=make_pairs(80, rnd),
        eval_dataset=make_pairs(12, rnd),
        processing_class=tokenizer,
    )
    trainer.train()
    for row in trainer.state.log_history:
        if "rewards/margins" in row:
            print(
                f"step {row['step']:3d} loss {row['loss']:.4f} margin {row['rewards/margins']:.4f} acc {row['rewards/accuracies']:.2f}"
            )
    m = trainer.evaluate()
    print("eval margin", m["eval_rewards/margins"])
