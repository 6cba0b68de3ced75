"""One environment and its text."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

PYTHON = "python"
"""The name under which the text of an environment states the version of Python."""
MIN_PYTHON = (3, 11)
"""Cells run Pharoah itself, which needs this one (pyproject.toml)."""
MAX_TEXT_LENGTH = 1000
"""Characters of the text of an environment; it is a setting of each of its cells."""
_REQUIREMENT = re.compile(r"([A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)==([A-Za-z0-9][A-Za-z0-9.!+_-]*)")
_PYTHON = re.compile(r"3\.(\d{1,2})")


class EnvironmentTextError(ValueError):
    """No environment; the message names what is wrong."""


@dataclass(frozen=True)
class Environment:
    """Packages at exact versions, and the Python that they are for."""

    packages: tuple[str, ...]
    """As `name==version`, sorted."""
    python: str = ""
    """Such as `3.12`; empty for the Python that the agent runs in."""

    @property
    def text(self) -> str:
        """What names it: equal environments have equal texts."""
        return " ".join([*([f"{PYTHON}=={self.python}"] if self.python else []), *self.packages])

    @classmethod
    def from_packages(cls, packages: Iterable[object], python: object = "") -> Environment:
        """Raises EnvironmentTextError for a package without an exact version, one that comes twice, a Python that
        cannot run Pharoah, and for an environment that states nothing."""
        versions: dict[str, str] = {}
        for package in packages:
            name, version = _requirement(package)
            if name in versions:
                raise EnvironmentTextError(f"{name} comes twice")
            versions[name] = version
        environment = cls(tuple(f"{name}=={versions[name]}" for name in sorted(versions)), _python(python))
        if not environment.text or len(environment.text) > MAX_TEXT_LENGTH:
            raise EnvironmentTextError(f"expected 1 to {MAX_TEXT_LENGTH} characters, not {len(environment.text)}")
        return environment

    @classmethod
    def read(cls, text: object) -> Environment:
        """Read a text. Raises EnvironmentTextError."""
        if not isinstance(text, str):
            raise EnvironmentTextError(f"expected a text, not {text!r:.40}")
        words = text.split()
        python = [word for word in words if word.startswith(f"{PYTHON}==")]
        rest = [word for word in words if word not in python]
        if len(python) > 1:
            raise EnvironmentTextError(f"{PYTHON} comes twice")
        return cls.from_packages(rest, python[0].removeprefix(f"{PYTHON}==") if python else "")


def _requirement(package: object) -> tuple[str, str]:
    """Name, in the one form that package indexes compare (PEP 503), and version."""
    found = _REQUIREMENT.fullmatch(package) if isinstance(package, str) else None
    if found is None:
        raise EnvironmentTextError(f"{package!r:.80} is not a package at one version, such as transformers==4.50.3")
    name = re.sub(r"[-_.]+", "-", found[1]).lower()
    if name == PYTHON:
        raise EnvironmentTextError("python is no package; an environment states it by its own key")
    return name, found[2]


def _python(version: object) -> str:
    if version == "":
        return ""
    found = _PYTHON.fullmatch(version) if isinstance(version, str) else None
    if found is None or (3, int(found[1])) < MIN_PYTHON:
        least = ".".join(map(str, MIN_PYTHON))
        raise EnvironmentTextError(f"python: {version!r:.40} is not a version such as {least}, or a later one")
    return str(version)
