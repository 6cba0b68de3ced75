"""Supervised fine-tuning of a toy llama on made-up prompt/answer pairs."""

import random

import torch
from datasets import Dataset
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import SFTConfig, SFTTrainer

rnd = random.Random(3)
NUM = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]


def sample():
    a, b = rnd.randint(0, 4), rnd.randint(0, 5)
    return {"prompt": f"question: what is {NUM[a]} plus {NUM[b]}? answer:", "completion": f" {NUM[a + b]}."}


def build_tokenizer(texts):
    tok = Tokenizer(models.BPE(unk_token=None))
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tok.decoder = decoders.ByteLevel()
    tok.train_from_iterator(
        texts,
        trainers.BpeTrainer(
            vocab_size=360,
            special_tokens=["<pad>", "<s>", "</s>"],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tok, pad_token="<pad>", bos_token="<s>", eos_token="</s>", padding_side="right"
    )


def main():
    rows = [sample() for _ in range(144)]
    tokenizer = build_tokenizer([r["prompt"] + r["completion"] for r in rows])
    ds = Dataset.from_list(rows).train_test_split(test_size=16, seed=0)

    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=2,
            max_position_embeddings=128,
            pad_token_id=tokenizer.pad_token_id,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
        )
    )

    cfg = SFTConfig(
        output_dir="sft_out",
        max_length=64,
        packing=False,
        completion_only_loss=True,
        per_device_train_batch_size=8,
        per_device_eval_batch_size=8,
        gradient_accumulation_steps=1,
        num_train_epochs=1,
        learning_rate=5e-3,
        lr_scheduler_type="cosine",
        logging_steps=4,
        eval_strategy="steps",
        eval_steps=8,
        save_strategy="no",
        bf16=torch.cuda.is_available(),
        report_to="none",
    )
    trainer = SFTTrainer(
        model=model, args=cfg, train_dataset=ds["train"], eval_dataset=ds["test"], processing_class=tokenizer
    )
    trainer.train()
    print(trainer.evaluate())

    model.eval()
    enc = tokenizer("question: what is two plus three? answer:", return_tensors="pt", return_token_type_ids=False).to(
        model.device
    )
    out = model.generate(**enc, max_new_tokens=6, do_sample=False)
    print(repr(tokenizer.decode(out[0, enc["input_ids"].shape[1] :], skip_special_tokens=True)))
    trainer.save_model("sft_out/final")


if __name__ == "__main__":
    main()
