"""Compute capabilities of GPUs by name, also of those whose ceilings are not known (`devices.toml`)."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from importlib import resources


def capability_of(gpu: str) -> str:
    """The compute capability of `Tesla P100-PCIE-16GB`, as 6.0; empty for a GPU that the data file does not have.

    The longest part of a name counts: a GTX TITAN X is of another generation than a TITAN Xp.
    """
    parts = [part for part in _parts() if _names(part, gpu)]
    return _parts()[max(parts, key=len)] if parts else ""


def _names(part: str, gpu: str) -> bool:
    """Whether a part stands in a name, and not within a longer word or number: a P40 is no P4000, RTX5090 is a 5090."""
    before = "[0-9]" if part[0].isdigit() else "[0-9A-Za-z]"
    return bool(re.search(rf"(?<!{before}){re.escape(part)}(?![0-9A-Za-z])", gpu, re.IGNORECASE))


@cache
def _parts() -> dict[str, str]:
    """Part of a name to compute capability."""
    data = tomllib.loads(resources.files(__package__).joinpath("gpus.toml").read_text(encoding="utf-8"))
    return {part: capability for capability, parts in data.items() for part in parts}
