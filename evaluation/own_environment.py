"""Python environments of evaluations: made once beside the repository's own one, and used offline afterwards.

What such an environment holds is pinned in a file of `requirements/`, and none of it is a dependency of Pharoah.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable, Mapping
from pathlib import Path

from evaluation.figures import OUTPUT, ROOT


def interpreter(
    name: str,
    *,
    first: tuple[str, ...] = (),
    variables: Mapping[str, str] | None = None,
    prepare: Callable[[Path], None] | None = None,
) -> str:
    """The interpreter of the environment with the packages of `requirements/NAME.txt`.

    The first call installs, which needs the package index. `first` are distributions that the others are built with,
    `variables` are set while they are built, and `prepare` gets the folder of the installed packages. Raises
    CalledProcessError when something cannot be installed.
    """
    requirements, folder = ROOT / "requirements" / f"{name}.txt", OUTPUT / f"{name}-environment"
    python, stamp = folder / "bin" / "python", folder / "pharoah.stamp"
    digest = hashlib.sha256(requirements.read_bytes() + sys.version.encode()).hexdigest()
    if stamp.exists() and stamp.read_text() == digest:
        return str(python)
    print(f"installing {requirements.relative_to(ROOT)} into {folder.relative_to(ROOT)}", flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    venv.create(folder, with_pip=True)
    options = "--quiet --disable-pip-version-check --no-deps --no-build-isolation"
    pip = [str(python), "-m", "pip", "install", *options.split()]
    lines = requirements.read_text().splitlines()
    if first:
        subprocess.run(
            [*pip, *(line for line in lines if line.startswith(tuple(f"{one}==" for one in first)))], check=True
        )
    subprocess.run([*pip, "-r", str(requirements)], env={**os.environ, **(variables or {})}, check=True)
    if prepare:
        prepare(next((folder / "lib").glob("python*/site-packages")))
    stamp.write_text(digest)
    return str(python)
