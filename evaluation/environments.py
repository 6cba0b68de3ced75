"""Python environments for parts of the evaluation: each is made once from a pinned list, and used offline.

They stand beside the repository's own environment, whose packages they do not touch. Pharoah itself is found by a path
file, so that it is always the working tree's.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Callable, Iterable
from pathlib import Path

from evaluation.figures import OUTPUT
from evaluation.pages import ROOT

Install = Callable[[list[str], Path], None]
"""Installs with a pip command, into a folder of packages."""


def python_with(name: str, requirements: Path, paths: Iterable[str | Path], install: Install | None = None) -> str:
    """The interpreter of the environment NAME in the folder of outputs. The first call installs, which needs the
    package index; so does a call after `requirements` or the version of Python have changed.

    `paths`: further folders with packages. `install`: what installs, if not everything of the list at once. Raises
    CalledProcessError when that fails.
    """
    folder = OUTPUT / name
    interpreter, stamp = folder / "bin" / "python", folder / "pharoah.stamp"
    digest = hashlib.sha256(requirements.read_bytes() + sys.version.encode()).hexdigest()
    if not stamp.exists() or stamp.read_text() != digest:
        print(f"installing {requirements.relative_to(ROOT)} into {folder.relative_to(ROOT)}", flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        venv.create(folder, with_pip=True)
        options = "--quiet --disable-pip-version-check --no-deps --no-build-isolation"
        pip = [str(interpreter), "-m", "pip", "install", *options.split()]
        packages = next((folder / "lib").glob("python*/site-packages"))
        if install is None:
            subprocess.run([*pip, "-r", str(requirements)], check=True)
        else:
            install(pip, packages)
        (packages / "pharoah.pth").write_text("".join(f"{path}\n" for path in paths))
        stamp.write_text(digest)
    return str(interpreter)


def ray_python() -> str:
    """An interpreter that has Ray beside everything that this one has (`requirements/ray.txt`)."""
    standard = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib")}
    own = [path for path in sys.path if Path(path).is_dir() and not _within(path, standard)]
    return python_with("ray-environment", ROOT / "requirements" / "ray.txt", [ROOT, *own])


def _within(path: str, standard: set[str]) -> bool:
    """Whether a folder belongs to the standard library, which every environment has."""
    return path in standard or any(path == f"{folder}/lib-dynload" for folder in standard)
