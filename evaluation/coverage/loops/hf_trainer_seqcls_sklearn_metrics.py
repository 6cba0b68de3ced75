import logging
from dataclasses import dataclass, field

import numpy as np
from datasets import ClassLabel, Dataset, DatasetDict, Features, Value
from sklearn.metrics import accuracy_score, precision_recall_fscore_support
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    DataCollatorWithPadding,
    DistilBertConfig,
    DistilBertForSequenceClassification,
    HfArgumentParser,
    PreTrainedTokenizerFast,
    Trainer,
    TrainingArguments,
)

logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", level=logging.INFO)
logger = logging.getLogger("sentiment")


@dataclass
class DataArgs:
    n_train: int = field(default=160, metadata={"help": "how many reviews to make up"})
    n_eval: int = field(default=48)
    max_length: int = field(default=24)


GOOD = "great wonderful loved brilliant superb charming".split()
BAD = "awful boring hated terrible dull weak".split()
FILL = "the film was and it plot with acting really very a of scene end".split()


def make_reviews(n, seed):
    rng = np.random.default_rng(seed)
    texts, labels = [], []
    for _ in range(n):
        y = int(rng.integers(2))
        w = list(rng.choice(FILL, size=rng.integers(5, 14)))
        for _ in range(2):
            w.insert(int(rng.integers(len(w))), str(rng.choice(GOOD if y else BAD)))
        texts.append(" ".join(w))
        labels.append(y)
    return Dataset.from_dict(
        {"text": texts, "label": labels},
        features=Features({"text": Value("string"), "label": ClassLabel(names=["neg", "pos"])}),
    )


def compute_metrics(eval_pred):
    logits, labels = eval_pred
    preds = np.argmax(logits, axis=-1)
    p, r, f1, _ = precision_recall_fscore_support(labels, preds, average="binary", zero_division=0)
    return {"accuracy": accuracy_score(labels, preds), "f1": f1, "precision": p, "recall": r}


def main():
    (data_args,) = HfArgumentParser(DataArgs).parse_args_into_dataclasses()
    ds = DatasetDict(train=make_reviews(data_args.n_train, 0), validation=make_reviews(data_args.n_eval, 1))

    words = ["[PAD]", "[UNK]"] + sorted(set(GOOD + BAD + FILL))
    tk = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="[UNK]"))
    tk.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=tk, pad_token="[PAD]", unk_token="[UNK]")

    def tokenize(batch):
        out = tokenizer(batch["text"], truncation=True, max_length=data_args.max_length)
        return {"input_ids": out["input_ids"], "attention_mask": out["attention_mask"]}

    ds = ds.map(tokenize, batched=True, remove_columns=["text"])
    names = ds["train"].features["label"].names

    config = DistilBertConfig(
        vocab_size=len(tokenizer),
        dim=32,
        hidden_dim=64,
        n_layers=2,
        n_heads=2,
        max_position_embeddings=32,
        num_labels=len(names),
        id2label=dict(enumerate(names)),
        label2id={n: i for i, n in enumerate(names)},
    )
    model = DistilBertForSequenceClassification(config)

    training_args = TrainingArguments(
        output_dir="sentiment_ckpt",
        eval_strategy="epoch",
        save_strategy="epoch",
        learning_rate=4e-3,
        per_device_train_batch_size=16,
        per_device_eval_batch_size=32,
        num_train_epochs=3,
        weight_decay=0.01,
        load_best_model_at_end=True,
        metric_for_best_model="accuracy",
        greater_is_better=True,
        save_total_limit=2,
        logging_steps=10,
        report_to="none",
    )
    trainer = Trainer(
        model=model,
        args=training_args,
        train_dataset=ds["train"],
        eval_dataset=ds["validation"],
        processing_class=tokenizer,
        data_collator=DataCollatorWithPadding(tokenizer),
        compute_metrics=compute_metrics,
    )
    trainer.train()
    logger.info("best checkpoint %s (%.3f)", trainer.state.best_model_checkpoint, trainer.state.best_metric)
    pred = trainer.predict(ds["validation"])
    logger.info("final metrics: %s", {k: round(float(v), 4) for k, v in pred.metrics.items()})


if __name__ == "__main__":
    main()
