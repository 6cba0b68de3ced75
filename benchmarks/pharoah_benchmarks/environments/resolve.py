"""Locks made by pip: what the packages of an environment need, as wheels with their hashes.

pip itself resolves, with the package index that it is configured for, and installs nothing. Nodes inherit torch, so a
lock holds it only where the environment states it: pip is given an empty torch of the nodes' version in its place.
"""

from __future__ import annotations

import json
import platform as machine
import re
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from pharoah_benchmarks.environments._environment import Environment
from pharoah_benchmarks.environments.answer import BuildError
from pharoah_benchmarks.environments.build import HEAVY, run_command
from pharoah_benchmarks.environments.lock import Lock, LockedPackage, LockError, this_platform
from pharoah_system.files import write_atomically

_MIN_PIP = "pip 23.0 or newer is needed"
_STUB = "Wheel-Version: 1.0\nGenerator: pharoah\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
_MIN_GLIBC, _NEWEST_GLIBC = 17, 40
"""Minor versions of glibc for whose wheels pip looks, for a machine of another kind (PEP 600)."""


def resolve(environment: Environment, *, python: str = "", platform: str = "", torch: str = "") -> Lock:
    """The lock of an environment, which has packages, for a kind of machine.

    `python`: such as `3.11`, by default that of the environment, else that of this process. `platform`: as
    `this_platform` gives it, which is the default. `torch`: the version that the nodes have, by default that of this
    machine. Raises LockError with pip's reason.
    """
    own = ".".join(machine.python_version_tuple()[:2])
    python, platform = environment.python or python or own, platform or this_platform()
    states_torch = any(package.startswith(f"{HEAVY}==") for package in environment.packages)
    with tempfile.TemporaryDirectory(prefix="pharoah-lock-") as folder:
        report = Path(folder, "report.json")
        command = [*_pip(python, own), "install", "--dry-run", "--ignore-installed", "--only-binary", ":all:"]
        command += ["--quiet", "--no-input", "--disable-pip-version-check", "--report", str(report)]
        command += _list_target_options(python, platform, own, folder)
        stub = None if states_torch else _stub_torch(Path(folder), torch)
        if stub is not None:
            constraints = Path(folder, "constraints.txt")
            write_atomically(constraints, f"{HEAVY} @ {stub.as_uri()}\n")
            command += ["--constraint", str(constraints)]
        try:
            run_command("pip", [*command, *environment.packages])
            content = json.loads(report.read_text())
        except BuildError as error:
            raise LockError(f"{environment.text}: {error}") from None
        except (OSError, ValueError) as error:
            raise LockError(f"{environment.text}: pip has written no report: {error} ({_MIN_PIP})") from None
    packages = [_lock(environment, one) for one in content["install"] if stub is None or not _is_torch(one)]
    if not states_torch and stub is None and any(package.name == HEAVY for package in packages):
        raise LockError(f"{environment.text}: it needs torch, which nodes have; say which version: --torch VERSION")
    return Lock.from_environment(environment, python, platform, packages)


def _pip(python: str, own: str) -> list[str]:
    """pip for a version of Python: that of this process, else of one that is here, else of this process for another."""
    command = [sys.executable, "-I", "-m", "pip"]
    found = shutil.which(f"python{python}") if python != own else None
    return [*command, "--python", found] if found else command


def _list_target_options(python: str, platform: str, own: str, folder: str) -> list[str]:
    """Options for a machine that is not this one. pip wants a folder to install to, although it installs nothing."""
    options = []
    if python != own and not shutil.which(f"python{python}"):
        options += ["--python-version", python]
    if platform != this_platform():
        processor = platform.removeprefix("linux_")
        tags = [f"manylinux_2_{minor}_{processor}" for minor in range(_MIN_GLIBC, _NEWEST_GLIBC)]
        tags = [*reversed(tags), f"manylinux2014_{processor}"] if platform != processor else []
        options += [word for tag in [platform, *tags] for word in ("--platform", tag)]
    return [*options, "--target", folder] if options else []


def _stub_torch(folder: Path, version: str) -> Path | None:
    """A wheel without content in place of the torch that nodes inherit; None where no version is known."""
    try:
        version = (version or metadata.version(HEAVY)).partition("+")[0]
    except metadata.PackageNotFoundError:
        return None
    path, info = folder / f"{HEAVY}-{version}-py3-none-any.whl", f"{HEAVY}-{version}.dist-info"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {HEAVY}\nVersion: {version}\n")
        wheel.writestr(f"{info}/WHEEL", _STUB)
        wheel.writestr(f"{info}/RECORD", "")
    return path


def _is_torch(one: Mapping[str, Any]) -> bool:
    return _normal(one["metadata"]["name"]) == HEAVY


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _lock(environment: Environment, one: Mapping[str, Any]) -> LockedPackage:
    """A package of pip's report. Raises LockError."""
    name, version, source = one["metadata"]["name"], one["metadata"]["version"], one["download_info"]
    wheel = unquote(urlsplit(source["url"]).path.rpartition("/")[2])
    sha256 = source.get("archive_info", {}).get("hashes", {}).get("sha256", "")
    if not sha256:
        raise LockError(f"{environment.text}: the package index gives no SHA-256 of {name} ({_MIN_PIP})")
    return LockedPackage.read(f"{_normal(name)}=={version} {wheel} sha256:{sha256}")
