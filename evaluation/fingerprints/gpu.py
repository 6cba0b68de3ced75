"""`python -m evaluation gpu` (`make gpu-check`): the measurements of `evaluation capture`, on a CUDA device.

Needs a GPU, a torch built for it and `transformers`; nothing else of Pharoah.
"""

from __future__ import annotations

import argparse
import os
import random
from typing import Any

import torch

from evaluation.figures import Figures, timed
from evaluation.fingerprints.run import NAMES, archetypes, compiled, cost
from evaluation.models.zoo import DEVICE


def run(arguments: argparse.Namespace) -> int:
    if not torch.cuda.is_available():
        raise SystemExit("evaluation gpu: torch sees no GPU here; run it where `torch.cuda.is_available()`")
    os.environ[DEVICE] = "cuda"
    figures = Figures("gpu")
    figures.details["device"] = torch.cuda.get_device_name()
    print(f"{figures.details['device']}, torch {torch.__version__}, CUDA {torch.version.cuda}")
    names = NAMES if not arguments.quick else NAMES[::4]
    prints: dict[str, dict[str, dict[str, Any]]] = {}
    timed("archetypes of dry and real steps", lambda: archetypes(figures, names, prints))
    timed("compiled", lambda: compiled(figures, names[::3], prints))
    timed("cost", lambda: cost(figures, 3, random.Random(arguments.seed)))
    return figures.finish(arguments)
