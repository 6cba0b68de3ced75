"""The Python environment with the libraries that scripts of this evaluation use: made once, used offline.

It stands beside the repository's own environment, whose packages it does not touch. Packages and versions are pinned in
`requirements/coverage.txt`; Pharoah itself is found by a path file, so that it is always the working tree's.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import venv

from evaluation.figures import OUTPUT, ROOT

REQUIREMENTS = ROOT / "requirements" / "coverage.txt"
FOLDER = OUTPUT / "coverage-environment"
SOURCES = ("archetypes", "benchmarks", "proto", "tenant_sdk")
"""Source folders of the repository that a tenant has."""


def python() -> str:
    """The environment's interpreter. The first call installs, which needs the package index.

    Raises CalledProcessError when that fails.
    """
    interpreter, stamp = FOLDER / "bin" / "python", FOLDER / "pharoah.stamp"
    digest = hashlib.sha256(REQUIREMENTS.read_bytes() + sys.version.encode()).hexdigest()
    if not stamp.exists() or stamp.read_text() != digest:
        print(f"installing {REQUIREMENTS.relative_to(ROOT)} into {FOLDER.relative_to(ROOT)}", flush=True)
        shutil.rmtree(FOLDER, ignore_errors=True)
        venv.create(FOLDER, with_pip=True)
        options = "--quiet --disable-pip-version-check --no-deps --no-build-isolation"
        pip = [str(interpreter), "-m", "pip", "install", *options.split()]
        first = [line for line in REQUIREMENTS.read_text().splitlines() if line.startswith(("torch==", "setuptools=="))]
        subprocess.run([*pip, *first], check=True)  # what the others are built with
        subprocess.run([*pip, "-r", str(REQUIREMENTS)], env={**os.environ, "DS_BUILD_OPS": "0"}, check=True)
        packages = next((FOLDER / "lib").glob("python*/site-packages"))
        # Without CUDA's libraries torchvision's own operators do not load, and only models that need none of them work.
        (packages / "torchvision" / "_meta_registrations.py").write_text("")
        (packages / "pharoah.pth").write_text("".join(f"{ROOT / source}\n" for source in SOURCES))
        stamp.write_text(digest)
    return str(interpreter)
