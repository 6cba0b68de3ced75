"""Models of torchvision for images, segmentation and videos, with the loss that its reference scripts have.

`torchvision.txt` lists them.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

DATA = Path(__file__).with_name("torchvision.txt")
CLASSES = 10
AUXILIARY_WEIGHTS = (1.0, 0.4, 0.4)
"""Weights of the outputs of a model with auxiliary classifiers, the main one first."""
FRAMES = 16
"""Frames of one video."""


def names() -> list[str]:
    """All names, in the order of the file."""
    return list(_rows())


def build(name: str, arguments: argparse.Namespace) -> tuple[nn.Module, Callable[[], Tensor]]:
    """The model, and a function from a new random batch to its loss."""
    import torchvision  # type: ignore[import-not-found, unused-ignore]

    kind, size, *rest = _rows()[name]
    keywords: dict[str, Any] = {key: json.loads(value) for key, _, value in (word.partition("=") for word in rest)}
    keywords |= {"weights_backbone": None} if kind == "segmentation" else {}
    model = torchvision.models.get_model(name, weights=None, num_classes=CLASSES, **keywords).to(arguments.device)
    area = (int(size), int(size))
    shape = (3, FRAMES, *area) if kind == "video" else (3, *area)
    classes = area if kind == "segmentation" else ()

    def loss_of_new_batch() -> Tensor:
        inputs = torch.randn(arguments.batch, *shape, device=arguments.device)
        labels = torch.randint(CLASSES, (arguments.batch, *classes), device=arguments.device)
        return _loss(model(inputs), labels)

    return model, loss_of_new_batch


def _loss(outputs: Any, labels: Tensor) -> Tensor:
    """Cross entropy; models with auxiliary classifiers give a tuple or a dictionary, with the main output first."""
    several = list(outputs.values()) if isinstance(outputs, dict) else outputs
    if isinstance(several, Tensor):
        return F.cross_entropy(several, labels)
    losses = [weight * F.cross_entropy(one, labels) for weight, one in zip(AUXILIARY_WEIGHTS, several, strict=False)]
    return torch.stack(losses).sum()


def _rows() -> dict[str, list[str]]:
    """From each name to the other words of its line."""
    lines = (line.split() for line in DATA.read_text().splitlines() if not line.startswith("#"))
    return {name: rest for name, *rest in filter(None, lines)}
