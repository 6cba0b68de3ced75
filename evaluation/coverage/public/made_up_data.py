"""Data made up for public scripts, in the formats that they read: `python made_up_data.py DIR`, DIR has their folders.

It runs in the environment of the libraries. All values are random; only their formats and rough sizes are real.
"""

from __future__ import annotations

import pickle
import random
import struct
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

CHANCE = np.random.default_rng(0)
WORDS = [f"{a}{b}" for a in ("ba", "do", "ke", "li", "mu", "ra", "so", "ti") for b in ("na", "ro", "se", "vi")]
COMMIT = "0" * 40
"""The name of the only version of a model in a cache of the Hugging Face hub."""

MNIST_FOLDERS = (
    "examples/data",
    "examples/mnist_forward_forward/data",
    "PyTorch-GAN/data/mnist",
    "pytorch-lightning/Datasets",
    "pytorch-lightning/examples/Datasets",
    "pytorch-tutorial/data",
    "pytorch-tutorial/tutorials/data",
    "TCN/TCN/mnist_pixel/data/mnist",
)
TEXTS = {
    "examples/word_language_model/data/wikitext-2/train.txt": 20_000,
    "minGPT/projects/chargpt/input.txt": 5_000,
    "pytorch-lightning/data/wikitext-2.txt": 20_000,
    "pytorch-tutorial/tutorials/02-intermediate/language_model/data/train.txt": 20_000,
}
"""How many words each file has."""
PICTURES = {
    "examples/imagenet/sample/train/n{}/{}.jpg": 256,
    "examples/imagenet/sample/val/n{}/{}.jpg": 256,
    "examples/super_resolution/dataset/BSDS300/images/train/{}_{}.jpg": 320,
    "examples/super_resolution/dataset/BSDS300/images/test/{}_{}.jpg": 320,
    "accelerate/pets/breed{}_{}.jpg": 256,
    "pytorch-image-models/pictures/train/{}/{}.jpg": 256,
    "pytorch-image-models/pictures/validation/{}/{}.jpg": 256,
    "diffusers/examples/unconditional_image_generation/pictures/{}_{}.jpg": 64,
}
"""Width of the pictures in pixels, by the pattern of their paths: class and number."""


def main(folder: Path) -> None:
    for make in MAKERS:
        print(f"  {make.__name__}", flush=True)
        make(folder)


def mnist(folder: Path) -> None:
    for place in MNIST_FOLDERS:
        raw = folder / place / "MNIST" / "raw"
        raw.mkdir(parents=True, exist_ok=True)
        for name, count in (("train", 6_000), ("t10k", 1_000)):
            pixels = CHANCE.integers(0, 256, (count, 28, 28), dtype=np.uint8)
            labels = CHANCE.integers(0, 10, count, dtype=np.uint8)
            (raw / f"{name}-images-idx3-ubyte").write_bytes(struct.pack(">4i", 2051, count, 28, 28) + pixels.tobytes())
            (raw / f"{name}-labels-idx1-ubyte").write_bytes(struct.pack(">2i", 2049, count) + labels.tobytes())


def texts(folder: Path) -> None:
    for name, words in TEXTS.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        drawn = CHANCE.choice(WORDS, words)
        path.write_text(
            "O God, O God!\n" + "\n".join(" ".join(drawn[at : at + 10]) for at in range(0, words, 10)) + "\n"
        )


def tokens(folder: Path) -> None:
    for name, vocabulary in (("shakespeare_char", 65), ("openwebtext", 50_257)):
        place = folder / "nanoGPT" / "data" / name
        place.mkdir(parents=True, exist_ok=True)
        for part in ("train", "val"):
            CHANCE.integers(0, vocabulary, 20_000, dtype=np.uint16).tofile(place / f"{part}.bin")
        (place / "meta.pkl").write_bytes(pickle.dumps({"vocab_size": vocabulary, "stoi": {}, "itos": {}}))


def pictures(folder: Path) -> None:
    from PIL import Image

    for pattern, width in PICTURES.items():
        for number in range(24):
            path = folder / pattern.format(number % 2, number)
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(CHANCE.integers(0, 256, (width, width, 3), dtype=np.uint8)).save(path)


def citations(folder: Path) -> None:
    """A graph of 700 papers, as text and in the format of Planetoid."""
    features = (CHANCE.random((700, 50)) < 0.1).astype(np.float32)
    classes = CHANCE.integers(0, 7, 700)
    edges = CHANCE.integers(0, 700, (2_500, 2))
    for example in ("gcn", "gat"):
        place = folder / "examples" / example / "cora"
        place.mkdir(parents=True, exist_ok=True)
        rows = (
            f"{paper} {' '.join(str(int(v)) for v in row)} class{classes[paper]}" for paper, row in enumerate(features)
        )
        (place / "cora.content").write_text("\n".join(rows) + "\n")
        (place / "cora.cites").write_text("\n".join(f"{a} {b}" for a, b in edges) + "\n")
    _planetoid(folder / "pytorch_geometric/data/Planetoid/Cora/raw", features, np.eye(7, dtype=np.float32)[classes])
    _planetoid(folder / "pytorch_geometric/data/Cora/Cora/raw", features, np.eye(7, dtype=np.float32)[classes])


def _planetoid(place: Path, features: np.ndarray, labels: np.ndarray) -> None:
    """640 papers have labels or are used for validation, 60 are the test set. Format: Yang et al. 2016."""
    from scipy.sparse import csr_matrix

    place.mkdir(parents=True, exist_ok=True)
    graph = {paper: CHANCE.integers(0, 700, 4).tolist() for paper in range(700)}
    values = {
        "x": csr_matrix(features[:140]), "allx": csr_matrix(features[:640]), "tx": csr_matrix(features[640:]),
        "y": labels[:140], "ally": labels[:640], "ty": labels[640:], "graph": graph,
    }  # fmt: skip
    for name, value in values.items():
        (place / f"ind.cora.{name}").write_bytes(pickle.dumps(value))
    (place / "ind.cora.test.index").write_text("\n".join(str(paper) for paper in range(640, 700)) + "\n")


def hub(folder: Path) -> None:
    """A tiny BERT and a ResNet-50-D, where libraries keep what they have downloaded."""
    import timm  # type: ignore[import-not-found, unused-ignore]
    from safetensors.torch import save_file
    from transformers import BertConfig, BertForMaskedLM, BertTokenizerFast

    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    bert = _hub_folder(folder, "bert-base-cased")
    (bert / "vocab.txt").write_text("\n".join(vocabulary) + "\n")
    BertTokenizerFast(str(bert / "vocab.txt"), do_lower_case=False).save_pretrained(bert)
    small = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
    BertForMaskedLM(BertConfig(vocab_size=len(vocabulary), **small)).save_pretrained(bert)
    resnet = timm.create_model("resnet50d", pretrained=False)
    save_file(resnet.state_dict(), _hub_folder(folder, "timm/resnet50d.ra2_in1k") / "model.safetensors")


def _hub_folder(folder: Path, model: str) -> Path:
    """The folder of a model's files in the hub's cache."""
    cache = folder / "huggingface" / "hub" / f"models--{model.replace('/', '--')}"
    snapshot = cache / "snapshots" / COMMIT
    snapshot.mkdir(parents=True, exist_ok=True)
    (cache / "refs").mkdir(exist_ok=True)
    (cache / "refs" / "main").write_text(COMMIT)
    return snapshot


def sentence_pairs(folder: Path) -> None:
    """GLUE's MRPC as `datasets` caches it, and a metric of that name beside the scripts that load it."""
    from datasets import (  # type: ignore[import-not-found, unused-ignore]
        ClassLabel,
        Dataset,
        DatasetInfo,
        Features,
        SplitDict,
        SplitInfo,
        Value,
    )

    sentence = Value("string")
    labels = ClassLabel(names=["not_equivalent", "equivalent"])
    features = Features({"sentence1": sentence, "sentence2": sentence, "label": labels, "idx": Value("int32")})
    name = {"builder_name": "parquet", "dataset_name": "glue", "config_name": "mrpc", "version": "0.0.0"}
    place = folder / "huggingface" / "datasets" / "nyu-mll___glue" / "mrpc" / "0.0.0" / COMMIT
    place.mkdir(parents=True, exist_ok=True)
    splits = {"train": 64, "validation": 16, "test": 16}
    for split, count in splits.items():
        rows = {
            "sentence1": [" ".join(random.choices(WORDS, k=12)) for _ in range(count)],
            "sentence2": [" ".join(random.choices(WORDS, k=12)) for _ in range(count)],
            "label": [number % 2 for number in range(count)],
            "idx": list(range(count)),
        }
        Dataset.from_dict(rows, features=features).save_to_disk(str(place / split))
        next((place / split).glob("*.arrow")).rename(place / f"glue-{split}.arrow")
    counted = SplitDict({split: SplitInfo(split, num_examples=count) for split, count in splits.items()})
    DatasetInfo(features=features, splits=counted, **name).write_to_directory(str(place))
    metric = folder / "accelerate" / "examples" / "glue" / "glue.py"
    metric.parent.mkdir(parents=True, exist_ok=True)
    metric.write_text(METRIC)


METRIC = '''import datasets
import evaluate


class Glue(evaluate.Metric):
    """Accuracy, under the name of the benchmark's metric."""

    def _info(self):
        number = datasets.Value("int64")
        features = datasets.Features({"predictions": number, "references": number})
        return evaluate.MetricInfo(description="accuracy", citation="", inputs_description="", features=features)

    def _compute(self, predictions, references):
        return {"accuracy": sum(p == r for p, r in zip(predictions, references)) / len(references)}
'''


def settings(folder: Path) -> None:
    """The size of diffusers' model, which its script reads from a file."""
    place = folder / "diffusers/examples/unconditional_image_generation/unet"
    place.mkdir(parents=True, exist_ok=True)
    (place / "config.json").write_text(
        '{"_class_name": "UNet2DModel", "sample_size": 32, "block_out_channels": [32, 64], "norm_num_groups": 8,'
        ' "down_block_types": ["DownBlock2D", "AttnDownBlock2D"], "up_block_types": ["AttnUpBlock2D", "UpBlock2D"]}'
    )


MAKERS: tuple[Callable[[Path], None], ...] = (
    mnist, texts, tokens, pictures, citations, hub, sentence_pairs, settings,
)  # fmt: skip

if __name__ == "__main__":
    main(Path(sys.argv[1]))
