"""Masked language modelling from scratch: trains a WordPiece-ish tokenizer and a very small BERT."""

import argparse
import os
import random

from datasets import Dataset, load_dataset
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import Lowercase
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing
from tokenizers.trainers import WordPieceTrainer
from transformers import (
    BertConfig,
    BertForMaskedLM,
    DataCollatorForLanguageModeling,
    PreTrainedTokenizerFast,
    Trainer,
    TrainingArguments,
)

SUBJ = ["the cat", "a small dog", "my neighbour", "the old captain", "our teacher", "the robot"]
VERB = ["sees", "follows", "paints", "forgets", "repairs", "carries"]
OBJ = ["the red house", "a broken clock", "two apples", "the river", "a green bicycle", "the moon"]


def write_corpus(path, n=240, seed=0):
    rnd = random.Random(seed)
    with open(path, "w", encoding="utf-8") as f:
        for _ in range(n):
            f.write(f"{rnd.choice(SUBJ)} {rnd.choice(VERB)} {rnd.choice(OBJ)} .\n")


def build_tokenizer(corpus, out):
    tok = Tokenizer(WordPiece(unk_token="[UNK]"))
    tok.normalizer = Lowercase()
    tok.pre_tokenizer = Whitespace()
    trainer = WordPieceTrainer(
        vocab_size=300, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"], show_progress=False
    )
    tok.train([corpus], trainer)
    tok.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]",
        special_tokens=[("[CLS]", tok.token_to_id("[CLS]")), ("[SEP]", tok.token_to_id("[SEP]"))],
    )
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tok,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        model_max_length=32,
    )
    fast.save_pretrained(out)
    return fast


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--work_dir", default="mlm_out")
    p.add_argument("--epochs", type=int, default=1)
    p.add_argument("--mlm_probability", type=float, default=0.15)
    p.add_argument("--hidden", type=int, default=32)
    a = p.parse_args()

    os.makedirs(a.work_dir, exist_ok=True)
    corpus = os.path.join(a.work_dir, "corpus.txt")
    write_corpus(corpus)
    tokenizer = build_tokenizer(corpus, a.work_dir)
    print("vocab:", len(tokenizer))

    lines = [l.strip() for l in open(corpus, encoding="utf-8") if l.strip()]
    ds = Dataset.from_dict({"text": lines})
    ds = ds.map(lambda b: tokenizer(b["text"], truncation=True, max_length=32), batched=True, remove_columns=["text"])
    split = ds.train_test_split(test_size=0.2, seed=0)

    cfg = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=a.hidden,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=2 * a.hidden,
        max_position_embeddings=40,
        pad_token_id=tokenizer.pad_token_id,
    )
    model = BertForMaskedLM(cfg)
    collator = DataCollatorForLanguageModeling(tokenizer=tokenizer, mlm=True, mlm_probability=a.mlm_probability)

    targs = TrainingArguments(
        output_dir=a.work_dir,
        num_train_epochs=a.epochs,
        per_device_train_batch_size=16,
        learning_rate=3e-3,
        logging_steps=4,
        eval_strategy="steps",
        eval_steps=6,
        save_strategy="no",
        report_to=[],
        seed=7,
    )
    trainer = Trainer(
        model=model, args=targs, data_collator=collator, train_dataset=split["train"], eval_dataset=split["test"]
    )
    print("before:", trainer.evaluate()["eval_loss"])
    trainer.train()
    print("after:", trainer.evaluate()["eval_loss"])
    trainer.save_model(os.path.join(a.work_dir, "final"))


if __name__ == "__main__":
    main()
