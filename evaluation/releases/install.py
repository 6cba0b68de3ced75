"""One release of torch in an environment of its own, which is removed afterwards.

uv installs (`requirements/releases.txt`): it is quick, and its cache lets the Pythons of one release share a download.
The index is whatever uv is configured to use.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from evaluation.coverage.environment import SOURCES
from evaluation.environments import python_with
from evaluation.figures import OUTPUT
from evaluation.pages import ROOT
from evaluation.releases.plan import OWN_PYTHON, Release

FOLDER = OUTPUT / "releases"
CACHE = FOLDER / "archives"
COMPILED = FOLDER / "compiled"
"""What torch compiles for the machine; a release's own, like its archives."""
PACKAGES = ("numpy", "grpcio", "protobuf", "cryptography", "pyzmq", "setuptools")
"""What Pharoah needs beside torch; and setuptools, which the compiler of torch 2.4 loads, and which pip puts into an
environment of Python 3.11."""
MIN_FREE_BYTES = 16 << 30
"""An environment with CUDA's libraries is 8 GB at most, and its archives lie beside it while it is installed."""
INSTALL_SECONDS = 3600.0
_PREFIX = "torch-"
"""How the folders of environments begin."""


@contextmanager
def alone() -> Iterator[None]:
    """Only one call installs and measures at a time. What a call that was killed has left is removed. Raises
    SystemExit when another one is at work."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SystemExit(f"{FOLDER}: another call measures releases; wait until it has ended") from None
        for left in FOLDER.glob(f"{_PREFIX}*"):
            shutil.rmtree(left, ignore_errors=True)
        yield


@contextmanager
def installed(release: Release) -> Iterator[Path]:
    """The interpreter of an environment with this release and with the working tree's Pharoah.

    Raises SystemExit when there is no such Python, no room, or no such release.
    """
    if release.is_own:
        yield Path(sys.executable)
        return
    folder = FOLDER / f"{_PREFIX}{release.torch}-python-{release.python}"
    if (free := shutil.disk_usage(FOLDER).free) < MIN_FREE_BYTES:
        raise SystemExit(f"{FOLDER}: {free >> 30} GiB are free, {MIN_FREE_BYTES >> 30} are needed for {release}")
    try:
        print(f"installing {release}", flush=True)
        _uv("venv", "--python", str(base_interpreter(release.python)), str(folder))
        interpreter = folder / "bin" / "python"
        _uv("pip", "install", "--python", str(interpreter), f"torch=={release.torch}", *PACKAGES)
        site = next((folder / "lib").glob("python*/site-packages"))
        (site / "pharoah.pth").write_text("".join(f"{ROOT / source}\n" for source in SOURCES))
        yield interpreter
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def forget() -> None:
    """Delete what was downloaded and compiled for a release: the next one needs other files."""
    for folder in (CACHE, COMPILED):
        shutil.rmtree(folder, ignore_errors=True)


def base_interpreter(python: str) -> Path:
    """The interpreter of a Python such as `3.12` on this machine. Raises SystemExit when there is none."""
    if python == OWN_PYTHON:
        return Path(sys.base_prefix, "bin", f"python{python}")
    for name in (f"python{python}", f"/usr/bin/python{python}", f"/usr/local/bin/python{python}"):
        # pyenv's programs ask the variable which of its Pythons is meant.
        command, environ = [name, "-c", "import sys; print(sys.executable)"], {**os.environ, "PYENV_VERSION": python}
        try:
            return Path(subprocess.check_output(command, env=environ, stderr=subprocess.DEVNULL, text=True).strip())
        except (OSError, subprocess.CalledProcessError):
            continue
    raise SystemExit(f"there is no python{python} in PATH: install it, or choose another with --python")


def _uv(*words: str) -> None:
    """Raises SystemExit with what uv has said."""
    tools = Path(python_with("releases-installer", ROOT / "requirements" / "releases.txt", []))
    environ = {**os.environ, "UV_CACHE_DIR": str(CACHE), "UV_PYTHON_DOWNLOADS": "never", "UV_HTTP_TIMEOUT": "300"}
    environ.pop("VIRTUAL_ENV", None)
    command = [str(tools.with_name("uv")), *words]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=INSTALL_SECONDS)
    if done.returncode:
        raise SystemExit(f"uv {' '.join(words[:2])}: {done.stderr.strip()[-1000:]}")
