"""Environments by the names that a campaign file may use."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pharoah_benchmarks.environments.files import (
    EnvironmentFileError,
    EnvironmentGroup,
    environment_files,
    read_environments,
)


class NamedEnvironments:
    """The environments of the files, and those that a campaign file declares."""

    def __init__(self, declared: Iterable[Mapping[str, Any]]) -> None:
        """Raises EnvironmentFileError for what is none, and for a name that a file has already."""
        files, own = environment_files(), read_environments(declared)
        if twice := files.keys() & own.keys():
            raise EnvironmentFileError(f"environment.name: there is an environment {min(twice)} already")
        self._groups: dict[str, EnvironmentGroup] = {**files, **own}

    def one(self, name: object) -> str:
        """The text of one environment. Raises EnvironmentFileError."""
        texts = self.all_of(name)
        if len(texts) > 1:
            raise EnvironmentFileError(f"{name!r} are {len(texts)} environments; name one of them, or vary them")
        return texts[0]

    def all_of(self, name: object) -> list[str]:
        """The texts of an environment, or of a group. Raises EnvironmentFileError."""
        for group in self._groups.values():
            if name == group.name:
                return [environment.text for environment in group.environments.values()]
            if name in group.environments:
                return [group.environments[str(name)].text]
        raise EnvironmentFileError(f"{name!r:.80} is no environment; known are {', '.join(self._groups) or 'none'}")
