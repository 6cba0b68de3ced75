"""Versions of what can change how a job behaves. Reads package metadata; imports nothing heavy."""

from __future__ import annotations

import sys
from importlib import metadata

from pharoah_archetypes.ladder import VERSIONED


def versions() -> dict[str, str]:
    """Package to version, for the packages the ladder knows. What is not installed is absent."""
    found: dict[str, str] = {}
    for package in VERSIONED:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    torch = sys.modules.get("torch")
    if torch is not None:
        found["torch"] = str(torch.__version__)
        if torch.version.cuda:
            found["cuda"] = str(torch.version.cuda)
            if torch.backends.cudnn.is_available():
                found["cudnn"] = str(torch.backends.cudnn.version())
    return found
