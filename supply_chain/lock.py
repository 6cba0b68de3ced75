"""`make lock`: write the files in `requirements/`, which pin every distribution that `make setup` installs by hash.

uv resolves pyproject.toml once for all Python versions and processors, and lists a hash of every file that the index
has of each distribution. Versions stay as they are pinned now: to renew one, remove its line first.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
REQUIREMENTS = ROOT / "requirements"
BUILD, DEV, CUDA, LOCK = (REQUIREMENTS / f"{name}.txt" for name in ("build", "dev", "cuda", "lock"))
CPU_TORCH = REQUIREMENTS / "torch_cpu.txt"
"""Written by hand: PyPI does not have torch's builds for CPUs."""
INSTALLERS = ("pip", "setuptools")
EVERY_PYTHON = "3.11"
"""The oldest Python that pyproject.toml supports; a universal resolution covers it and all later ones."""
ONLY_SOURCES = ("autograd-gamma",)
"""There are no wheels of these: they are built with the pinned setuptools."""
CUDA_ONLY = re.compile(r"(nvidia-(?!ml-py)|cuda-|triton$)")
"""Names of what only torch's build for CUDA needs; it is the larger part by far."""
_ENTRY = re.compile(r"^(?=[A-Za-z0-9])", re.MULTILINE)
_NAME = re.compile(r"[A-Za-z0-9._-]+")


def main() -> int:
    """Write all files. Returns the exit code."""
    with tempfile.TemporaryDirectory() as folder:
        uv = _install_uv(Path(folder))
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())
        builders = project["build-system"]["requires"]
        built = set(_entries(_compile(uv, [*builders, *INSTALLERS])))
        entries = _entries(_compile(uv, [*builders, *INSTALLERS], "pyproject.toml", "--extra", "dev"))
        uv_entries = _entries(_compile(uv, ["uv"]))
    cuda = {name for name in entries if CUDA_ONLY.match(name)}
    _write(BUILD, "what installs and builds", (entries[name] for name in sorted(built)), [])
    _write(DEV, "everything else", (entries[name] for name in sorted(entries.keys() - built - cuda)), ONLY_SOURCES)
    _write(CUDA, "what only torch's build for CUDA needs", (entries[name] for name in sorted(cuda)), [])
    _write(LOCK, "what `make lock` needs", uv_entries.values(), [])
    return 0


def pin_versions(*files: Path) -> dict[str, str]:
    """Each distribution's version, by its name, in these files."""
    lines = [line for file in files if file.exists() for line in file.read_text().splitlines()]
    pins = (re.match(rf"({_NAME.pattern})==([^ ]+)", line) for line in lines)
    return {pin[1]: pin[2] for pin in pins if pin}


def hashes(*files: Path) -> defaultdict[str, set[str]]:
    """The SHA-256 hashes of each distribution, by its name, in these files."""
    found = defaultdict[str, set[str]](set)
    for file in files:
        for name, text in _entries(file.read_text()).items():
            found[name].update(re.findall(r"--hash=sha256:([0-9a-f]{64})", text))
    return found


def _install_uv(folder: Path) -> list[str]:
    """The command of the pinned uv, installed into `folder` alone."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([*pip, "--require-hashes", "--target", folder, "-r", LOCK], check=True)
    return [str(folder / "bin" / "uv"), "--no-config"]


def _compile(uv: list[str], wanted: Iterable[str], *sources: str) -> str:
    """A resolution of `wanted` and of further sources, which keeps all pinned versions, as a requirements file."""
    index = os.environ.get("PIP_INDEX_URL")
    with tempfile.TemporaryDirectory() as folder:
        keep = Path(folder, "keep.txt")
        keep.write_text(
            "".join(f"{name}=={version}\n" for name, version in pin_versions(BUILD, DEV, CUDA, LOCK).items())
        )
        options = ["--universal", "--python-version", EVERY_PYTHON, "--generate-hashes", "--no-header", "--no-annotate"]
        command = [*uv, "pip", "compile", "-", *sources, *options, "--constraints", str(keep)]
        command += ["--default-index", index] if index else []
        done = subprocess.run(command, input="\n".join(wanted), stdout=subprocess.PIPE, text=True, check=True, cwd=ROOT)
    return done.stdout


def _entries(text: str) -> dict[str, str]:
    """Each distribution's lines, by its name."""
    parts = (part.strip() for part in _ENTRY.split(text))
    return {_NAME.match(part)[0]: part for part in parts if "==" in part.partition("\n")[0]}  # type: ignore[index]


def _write(path: Path, what: str, entries: Iterable[str], only_sources: Iterable[str]) -> None:
    path.write_text("\n".join(_lines(what, entries, only_sources)) + "\n")


def _lines(what: str, entries: Iterable[str], only_sources: Iterable[str]) -> Iterator[str]:
    yield f"# `make lock` writes this file: {what}, with a hash of every file that the index has of it."
    yield "--only-binary :all:"
    yield from (f"--no-binary {name}" for name in only_sources)
    yield from entries


if __name__ == "__main__":
    sys.exit(main())
