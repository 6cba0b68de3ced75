"""Image classifiers of timm: the smallest variant of each of its families. `timm.txt` lists them."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

DATA = Path(__file__).with_name("timm.txt")
CLASSES = 10


def names() -> list[str]:
    """All names, in the order of the file."""
    return list(_rows())


def build(name: str, arguments: argparse.Namespace) -> tuple[nn.Module, Callable[[], Tensor]]:
    """The model, and a function from a new random batch to its loss."""
    import timm  # type: ignore[import-not-found, unused-ignore]

    size, *rest = _rows()[name]
    keywords: dict[str, Any] = {key: json.loads(value) for key, _, value in (word.partition("=") for word in rest)}
    model = timm.create_model(name, pretrained=False, num_classes=CLASSES, **keywords).to(arguments.device)
    shape = (arguments.batch, model.default_cfg["input_size"][0], int(size), int(size))

    def loss_of_new_batch() -> Tensor:
        labels = torch.randint(CLASSES, (arguments.batch,), device=arguments.device)
        outputs = model(torch.randn(shape, device=arguments.device))
        return _loss(outputs, labels)

    return model, loss_of_new_batch


def _loss(outputs: Any, labels: Tensor) -> Tensor:
    """Cross entropy; models that are distilled give two outputs while they train, which count the same."""
    if isinstance(outputs, Tensor):
        return F.cross_entropy(outputs, labels)
    return torch.stack([F.cross_entropy(one, labels) for one in outputs]).mean()


def _rows() -> dict[str, list[str]]:
    """From each name to the other words of its line."""
    lines = (line.split() for line in DATA.read_text().splitlines() if not line.startswith("#"))
    return {name: rest for name, *rest in filter(None, lines)}
