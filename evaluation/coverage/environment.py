"""The Python environment with the libraries that scripts of this evaluation use.

Packages and versions are pinned in `requirements/coverage.txt`; Pharoah itself is found by a path file, so that it is
always the working tree's.
"""

from __future__ import annotations

from pathlib import Path

from evaluation.figures import ROOT
from evaluation.own_environment import interpreter

SOURCES = ("archetypes", "benchmarks", "proto", "tenant_sdk")
"""Source folders of the repository that a tenant has."""


def python() -> str:
    """The environment's interpreter. The first call installs, which needs the package index.

    Raises CalledProcessError when that fails.
    """
    return interpreter("coverage", first=("torch", "setuptools"), variables={"DS_BUILD_OPS": "0"}, prepare=_prepare)


def _prepare(packages: Path) -> None:
    # Without CUDA's libraries torchvision's own operators do not load, and only models that need none of them work.
    (packages / "torchvision" / "_meta_registrations.py").write_text("")
    (packages / "pharoah.pth").write_text("".join(f"{ROOT / source}\n" for source in SOURCES))
