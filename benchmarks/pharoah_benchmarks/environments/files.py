"""Environments as data: a file each, or a table of a campaign file.

A file `NAME.toml` stands beside this module, or in a folder that the environment variable PHAROAH_ENVIRONMENT_FILES
names, on the provider. A campaign file may declare more, as `[[environment]]` with a `name`.

    help = "versions of transformers"
    python = "3.11"                            # optional; by default the Python that the agent runs in
    packages = ["transformers=={version}"]
    versions = ["4.40.2", "4.50.3"]            # optional: one environment for each, NAME-4.40.2 and NAME-4.50.3
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from pharoah_benchmarks.environments._environment import Environment, EnvironmentTextError
from pharoah_benchmarks.environments.lock import Lock, LockError, read_locks
from pharoah_system.bounded_reading import UnreadableInput, read_toml_file

FOLDERS = "PHAROAH_ENVIRONMENT_FILES"
"""Environment variable: folders with environments of a provider's own, separated as in PATH."""
_OWN = Path(__file__).parent
_KEYS = {"help", "python", "packages", "versions", "lock"}
_VERSION = "{version}"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class EnvironmentFileError(ValueError):
    """A file or a table that is no environment; the message names it and the key."""


@dataclass(frozen=True)
class EnvironmentGroup:
    """What one file, or one table, declares."""

    name: str
    help: str
    environments: Mapping[str, Environment]
    """By name, in the order of the file; one that has the name of the group where the file states no versions."""
    locks: Mapping[str, list[Lock]] = field(default_factory=dict)
    """Locks by the text of their environment."""


def environment_files() -> dict[str, EnvironmentGroup]:
    """All groups by name. Raises EnvironmentFileError for a file that is none, and for a name that comes twice."""
    return _read(tuple(filter(None, os.environ.get(FOLDERS, "").split(os.pathsep))))


def read_environments(tables: Iterable[Mapping[str, Any]]) -> dict[str, EnvironmentGroup]:
    """The groups that the `[[environment]]` tables of a campaign file declare. Raises EnvironmentFileError."""
    groups: dict[str, EnvironmentGroup] = {}
    for table in tables:
        name = table.get("name")
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise EnvironmentFileError("environment.name: expected letters, digits, `.`, `_` and `-`")
        if name in groups:
            raise EnvironmentFileError(f"environment.name: {name!r} comes twice")
        rest = {key: value for key, value in table.items() if key != "name"}
        groups[name] = _group(name, rest, f"environment {name}")
    return groups


@lru_cache(maxsize=4)
def _read(folders: tuple[str, ...]) -> dict[str, EnvironmentGroup]:
    known: dict[str, EnvironmentGroup] = {}
    for folder in (_OWN, *map(Path, folders)):
        if not folder.is_dir():
            raise EnvironmentFileError(f"{FOLDERS}: {folder}: no such folder")
        for path in sorted(folder.glob("*.toml")):
            if path.stem in known:
                raise EnvironmentFileError(f"{path}: there is an environment {path.stem} already")
            known[path.stem] = environment_file(path)
    return dict(sorted(known.items()))


def environment_file(path: Path) -> EnvironmentGroup:
    """What one file declares. Raises EnvironmentFileError."""
    try:
        data = read_toml_file(path)
    except OSError as error:
        raise EnvironmentFileError(f"{path}: {error.strerror}") from None
    except UnreadableInput as error:
        raise EnvironmentFileError(str(error)) from None
    return _group(path.stem, data, str(path))


def _group(name: str, data: Mapping[str, Any], where: str) -> EnvironmentGroup:
    if unknown := data.keys() - _KEYS:
        raise EnvironmentFileError(f"{where}: {min(unknown)}: unknown key; known are {', '.join(sorted(_KEYS))}")
    if not isinstance(data.get("help", ""), str):
        raise EnvironmentFileError(f"{where}: help: expected a text")
    packages, versions = _texts(data, "packages", where), _texts(data, "versions", where)
    varies = any(_VERSION in package for package in packages)
    if varies != ("versions" in data) or len(set(versions)) < len(versions):
        raise EnvironmentFileError(
            f"{where}: versions: expected different versions, and {_VERSION} in one of the packages"
        )
    environments = {}
    for version in versions or [""]:
        try:
            chosen = [package.replace(_VERSION, version) for package in packages]
            environments[f"{name}-{version}" if varies else name] = Environment.from_packages(
                chosen, data.get("python", "")
            )
        except EnvironmentTextError as error:
            key = "" if str(error).startswith("python") else "packages: "
            raise EnvironmentFileError(f"{where}: {key}{error}") from None
    try:
        locks = read_locks(_tables(data, where))
    except LockError as error:
        raise EnvironmentFileError(f"{where}: {error}") from None
    return EnvironmentGroup(name, data.get("help", ""), environments, locks)


def _tables(data: Mapping[str, Any], where: str) -> list[Mapping[str, Any]]:
    tables = data.get("lock", [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise EnvironmentFileError(f"{where}: lock: expected [[lock]] tables")
    return tables


def _texts(data: Mapping[str, Any], key: str, where: str) -> list[str]:
    values = data.get(key, [])
    if (
        not isinstance(values, list)
        or not all(isinstance(value, str) for value in values)
        or (key in data and not values)
    ):
        raise EnvironmentFileError(f"{where}: {key}: expected a list of texts")
    return values
