"""Models of transformers, made tiny by their configurations, with the loss that each computes from its labels.

`transformers.toml` lists them by task, with the sizes that configurations get and with what single types need besides.
"""

from __future__ import annotations

import argparse
import dataclasses
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

DATA: dict[str, Any] = tomllib.loads(Path(__file__).with_name("transformers.toml").read_text())
SIZES: dict[str, int] = {name: group["size"] for group in DATA["sizes"].values() for name in group["names"]}
"""The largest value that an attribute of a configuration keeps."""
SMALLEST_WIDTH = 16
"""Widths of stages are halved together until the smallest one would be below this."""
LAYERS, MAX_LAYERS = 2, 4
"""Layers of a model whose layers are all of one kind, and the most of one with a layer of each kind."""
LOWEST_TOKEN, VOCABULARY = 10, SIZES["vocab_size"]
"""Tokens below the lowest one have a special meaning; no random text holds them."""
IMAGE_TOKEN = LOWEST_TOKEN - 1
"""Stands for a part of an image in a text."""
CLASSES = 10
SPECIAL = ("_token_id", "_token_index")
"""Ends of the names of attributes that hold special tokens."""


def names() -> list[str]:
    """All names, each with its task in front, such as `causal:llama`."""
    return [f"{task}:{kind}" for task, entry in DATA["tasks"].items() for kind in entry["types"]]


def build(name: str, arguments: argparse.Namespace) -> tuple[nn.Module, Callable[[], Tensor]]:
    """The model, and a function from a new random batch to its loss."""
    import transformers

    resize(arguments.sizes)
    task, _, kind = name.partition(":")
    entry, own = DATA["tasks"][task], [DATA["own"].get(key, {}) for key in (kind, name)]
    values, inputs = entry.get("config", {}), entry["inputs"]
    for more in own:
        values, inputs = values | more.get("config", {}), inputs | more.get("inputs", {})
    config = shrunk(transformers.AutoConfig.for_model(kind), values)
    model = getattr(transformers, entry["model"]).from_config(config).to(arguments.device)

    def loss_of_new_batch() -> Tensor:
        loss: Tensor = model(**_batch(inputs, arguments)).loss
        return loss

    return model, loss_of_new_batch


def resize(sizes: list[str]) -> None:
    """Let configurations keep other sizes, each given as `NAME=SIZE` with a name of a table `sizes`."""
    for name, _, size in (given.partition("=") for given in sizes):
        SIZES.update(dict.fromkeys(DATA["sizes"][name]["names"], int(size)))


def shrunk(config: Any, corrections: Mapping[str, Any]) -> Any:
    """A tiny configuration of the same type, made again so that whatever follows from sizes follows from the new ones.

    `corrections` go before the sizes of the table; those of a configuration inside this one are a mapping themselves.
    """
    fields = [field for field in dataclasses.fields(config) if field.default is not None]
    defaults = {config.attribute_map.get(field.name, field.name): field.default for field in fields}
    values: dict[str, Any] = {}
    for name, value in vars(config).items():
        small = _small(name, value, config, name in defaults)
        if small is not None:
            values[name] = small
        elif name in defaults and not hasattr(value, "model_type") and value != defaults[name]:
            values[name] = value
    values |= _layers(config)
    if "_out_features" in vars(config) and "depths" in vars(config):
        values["out_features"] = list(config.out_features)
    for name, value in corrections.items():
        inner = getattr(config, name, None)
        values[name] = shrunk(inner, value) if hasattr(inner, "model_type") else value
    return type(config)(**values)


def _small(name: str, value: Any, config: Any, has_default: bool) -> Any:
    """The small value of an attribute; None for one that is no size, or that the configuration derives from others."""
    if hasattr(value, "model_type"):
        return shrunk(value, {})
    if not has_default or isinstance(value, bool) or not isinstance(value, int | list | tuple):
        return None
    if name.endswith(SPECIAL):
        return _special(name, value, config)
    if name == "num_key_value_heads":
        heads = SIZES["num_attention_heads"]
        return heads if value == vars(config).get("num_attention_heads", value) else min(value, heads // 2)
    if isinstance(value, int):
        return min(value, SIZES[name]) if name in SIZES else None
    if name in DATA["lists"]["widths"]:
        return _narrowed(list(value))
    return [min(one, LAYERS) for one in value] if name in DATA["lists"]["depths"] else None


def _special(name: str, value: Any, config: Any) -> Any:
    """A special token below all tokens of random texts, another one for each attribute as far as there are some."""
    usual = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    usual |= {"image_token_id": IMAGE_TOKEN, "image_token_index": IMAGE_TOKEN}
    others = sorted(key for key in vars(config) if key.endswith(SPECIAL) and key not in usual)
    token = usual[name] if name in usual else 3 + others.index(name) % (IMAGE_TOKEN - 3)
    return token if isinstance(value, int) else [token]


def _narrowed(widths: list[int]) -> list[int]:
    """Widths in the same proportion, halved as often as they can be."""
    while min(widths) >= 2 * SMALLEST_WIDTH and all(width % 2 == 0 for width in widths):
        widths = [width // 2 for width in widths]
    return widths


def _layers(config: Any) -> dict[str, Any]:
    """One layer of each kind, where lists in the configuration give the kind of each layer."""
    count = vars(config).get("num_hidden_layers")
    lists = {name: value for name, value in vars(config).items() if name.endswith(("_types", "_block_type"))}
    lists = {name: value for name, value in lists.items() if isinstance(value, list) and len(value) == count}
    if not lists:
        return {}
    chosen = list(dict.fromkeys(zip(*lists.values(), strict=True)))[:MAX_LAYERS]
    chosen += chosen[-1:] * (LAYERS - len(chosen))
    columns = [list(column) for column in zip(*chosen, strict=True)]
    return {**dict(zip(lists, columns, strict=True)), "num_hidden_layers": len(chosen)}


def _batch(inputs: Mapping[str, Any], arguments: argparse.Namespace) -> dict[str, Any]:
    """Random inputs of a model. Each is given by its values and shape, by the name of another one, or as a flag."""
    batch: dict[str, Any] = {}
    for name, given in inputs.items():
        if isinstance(given, list) and given:
            shape = [arguments.length if size == "length" else size for size in given[1:]]
            batch[name] = _values(given[0], [arguments.batch, *shape], arguments.device)
        elif isinstance(given, bool):
            batch[name] = given
    return batch | {name: batch[other] for name, other in inputs.items() if isinstance(other, str)}


def _values(kind: Any, shape: list[int], device: torch.device) -> Any:
    """New values of one input. `shape` begins with the size of the batch."""
    match kind:
        case "real":
            return torch.randn(shape, device=device)
        case "token":
            return torch.randint(LOWEST_TOKEN, VOCABULARY, shape, device=device)
        case "image and token":
            image = torch.full(shape[:2], IMAGE_TOKEN, device=device)
            return torch.cat([image, _values("token", shape[::2], device)], 1)
        case "is image":
            return torch.cat([_values(1, shape[:2], device), _values(0, shape[::2], device)], 1)
        case "some":
            return torch.randint(2, shape, device=device)
        case "class":
            return torch.randint(CLASSES, shape, device=device)
        case "boxes":
            return [{"class_labels": _values("class", shape[1:], device), "boxes": _boxes(shape[1], device)}] * shape[0]
        case _:
            return torch.tensor(kind, device=device).expand(shape).contiguous()


def _boxes(count: int, device: torch.device) -> Tensor:
    """Boxes inside an image: centre, width and height as parts of its edges."""
    centres, sizes = torch.rand(2, count, 2, device=device) * 0.4
    return torch.cat([centres + 0.3, sizes + 0.1], 1)
