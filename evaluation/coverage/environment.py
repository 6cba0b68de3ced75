"""The Python environment with the libraries that scripts of this evaluation use: made once, used offline.

Packages and versions are pinned in `requirements/coverage.txt`.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from evaluation.environments import python_with
from evaluation.pages import ROOT

REQUIREMENTS = ROOT / "requirements" / "coverage.txt"
SOURCES = ("archetypes", "benchmarks", "proto", "tenant_sdk")
"""Source folders of the repository that a tenant has."""


def python() -> str:
    """The environment's interpreter. The first call installs, which needs the package index.

    Raises CalledProcessError when that fails.
    """
    return python_with("coverage-environment", REQUIREMENTS, [ROOT / source for source in SOURCES], _install)


def _install(pip: list[str], packages: Path) -> None:
    first = [line for line in REQUIREMENTS.read_text().splitlines() if line.startswith(("torch==", "setuptools=="))]
    subprocess.run([*pip, *first], check=True)  # what the others are built with
    subprocess.run([*pip, "-r", str(REQUIREMENTS)], env={**os.environ, "DS_BUILD_OPS": "0"}, check=True)
    # Without CUDA's libraries torchvision's own operators do not load, and only models that need none of them work.
    (packages / "torchvision" / "_meta_registrations.py").write_text("")
