#!/usr/bin/env python3
"""The project's verbs, in plain Python: `python3 dev.py test`. The Makefile only calls this.

Needs nothing but Python 3.11+. `setup` makes `.venv` from `requirements/`; the other verbs call it first when it is
missing or older than what it was made from.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import platform
import shutil
import signal
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
STAMP = VENV / "pharoah.stamp"
PIP = [PYTHON, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
MAX_WORKERS = "4"
"""Processes of the test suite: each imports torch and may train a model, which takes about 1 GB."""
REQUIREMENTS = ("build", "torch_cpu", "dev", "cuda")
"""Files in `requirements/`: what builds and installs, torch for CPUs, everything else, and what only torch for
CUDA needs. Each names versions and hashes; `make lock` writes all but `torch_cpu`."""


def _inputs_digest() -> str:
    names = ["pyproject.toml", *(f"requirements/{name}.txt" for name in REQUIREMENTS)]
    content = b"".join((ROOT / name).read_bytes() for name in names)
    return hashlib.sha256(content + sys.version.encode()).hexdigest()


def setup() -> None:
    """Make `.venv` of files whose hashes are known; a second call costs nothing."""
    if STAMP.exists() and STAMP.read_text() == _inputs_digest():
        return
    print("setting up .venv (pinned in requirements/; torch 2.13.0 is the large part)", flush=True)
    shutil.rmtree(VENV, ignore_errors=True)
    try:
        venv.create(VENV, with_pip=True)
    except subprocess.CalledProcessError:
        sys.exit("python3 -m venv failed: this Python has no ensurepip. On Debian: apt-get install python3-venv")
    build, cpu, dev, cuda = REQUIREMENTS
    _call(_installing(build))
    # The build for CPUs, where the index offers one: the other one needs CUDA's libraries too, by far the largest part.
    has_cpu_build = subprocess.run(_installing(cpu), cwd=ROOT, stderr=subprocess.DEVNULL).returncode == 0
    # Without isolation: what is built is built by the versions that were installed first.
    _call(_installing(dev, "--no-build-isolation"))
    if not has_cpu_build:
        _call(_installing(cuda))
    _call([*PIP, "--no-index", "--no-deps", "--no-build-isolation", "-e", "."])
    STAMP.write_text(_inputs_digest())


def demo() -> None:
    """The main job end to end, at most 5 minutes on 2 cores."""
    setup()
    _call([PYTHON, "-m", "evaluation", "demo"])


def test() -> None:
    """The test suite, in one process per core."""
    setup()
    _call([PYTHON, "-m", "pytest", "-n", "logical", "--maxprocesses", MAX_WORKERS, "--dist", "loadgroup"])


def lock() -> None:
    """Pin what setup installs again, with a hash of every file (requirements/)."""
    setup()
    _call([PYTHON, "-m", "supply_chain.lock"])


def sbom() -> None:
    """The bill of materials of what is installed, as CycloneDX JSON, after a check of the licences."""
    setup()
    _call([PYTHON, "-m", "supply_chain.licences"])
    _call([PYTHON, "-m", "supply_chain.sbom", "--out", "evaluation-out/sbom.json"])


def gpu_check() -> None:
    """Capture, its cost and dry runs on this machine's GPU."""
    setup()
    _call([PYTHON, "-m", "evaluation", "gpu", "--out", "evaluation-out/gpu.json"])


def lint() -> None:
    """ruff, as formatter and as linter."""
    setup()
    _call([PYTHON, "-m", "ruff", "format", "--check", "."])
    _call([PYTHON, "-m", "ruff", "check", "."])


def types() -> None:
    """mypy, strict."""
    setup()
    _call([PYTHON, "-m", "mypy"])


def protos() -> None:
    """Descriptor set and type stubs from proto/."""
    setup()
    _call([PYTHON, "proto/generate.py"])


def waiter() -> None:
    """Compile the small program that waits for a job (ADR 67), for this machine, and print the hash of its source."""
    machine, source = platform.machine(), ROOT / "proto/pharoah_system/waiter.c"
    size = ["-Os", "-static", "-nostdlib", "-nostartfiles", "-fno-pie", "-no-pie", "-s", "-Wl,--build-id=none"]
    plain = ["-fno-builtin", "-fno-stack-protector", "-fno-asynchronous-unwind-tables", "-mgeneral-regs-only"]
    pages = ["-Wl,-z,noseparate-code", "-Wl,-z,norelro", "-Wall", "-Wextra", "-Werror"]
    _call(["gcc", *size, *plain, *pages, "-o", source.with_name(f"waiter-{machine}"), source])
    print(hashlib.sha256(source.read_bytes()).hexdigest()[:16])


def check() -> None:
    """lint, types and test."""
    lint()
    types()
    test()


def clean() -> None:
    """Remove what the verbs made, .venv included."""
    for name in (".venv", "demo", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis"):
        shutil.rmtree(ROOT / name, ignore_errors=True)


VERBS = [setup, demo, test, gpu_check, lint, types, protos, waiter, lock, sbom, check, clean]


def _installing(name: str, *options: str) -> list[str | Path]:
    """The command that installs a file of `requirements/`. pip refuses every file whose hash is not listed there."""
    return [*PIP, "--require-hashes", "--no-deps", *options, "-r", f"requirements/{name}.txt"]


def _name(verb: Callable[[], None]) -> str:
    return verb.__name__.replace("_", "-")


def _call(command: list[str | Path]) -> None:
    """Run a command to its end, also when it is interrupted: then it has processes of its own to end."""
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    child = subprocess.Popen([str(part) for part in command], cwd=ROOT, env=environment)
    # A terminal sends SIGINT to the child, too. SIGTERM comes to this process alone.
    before = {
        signal.SIGINT: signal.signal(signal.SIGINT, lambda *_: None),
        signal.SIGTERM: signal.signal(signal.SIGTERM, lambda *_: child.terminate()),
    }
    try:
        status = child.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if status:
        sys.exit(status if status > 0 else 128 - status)


def main() -> None:
    if sys.version_info < (3, 11):  # noqa: UP036 - whoever runs this may have any Python
        sys.exit(f"Pharoah needs Python 3.11 or newer; this is {sys.version.split()[0]}")
    parser = argparse.ArgumentParser(description="The project's verbs.")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    for verb in VERBS:
        verbs.add_parser(_name(verb), help=verb.__doc__, description=verb.__doc__)
    named = {_name(verb): verb for verb in VERBS}
    named[parser.parse_args().verb]()


if __name__ == "__main__":
    main()
