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
from pharoah_benchmarks.environments.lock import LockError, locks_text, read_locks


class NamedEnvironments:
    """The environments of the files, and those that a campaign file declares."""

    def __init__(self, declared: Iterable[Mapping[str, Any]], locks: Iterable[Mapping[str, Any]] = ()) -> None:
        """`locks`: the `[[lock]]` tables of the campaign file, which count before those of other files. Raises
        EnvironmentFileError for what is none, and for a name that a file has already."""
        files, own = environment_files(), read_environments(declared)
        if twice := files.keys() & own.keys():
            raise EnvironmentFileError(f"environment.name: there is an environment {min(twice)} already")
        self._groups: dict[str, EnvironmentGroup] = {**files, **own}
        try:
            stated = read_locks(locks)
            found = {text: of_text for group in self._groups.values() for text, of_text in group.locks.items()}
            self._locks = {text: locks_text(of_text) for text, of_text in {**found, **stated}.items()}
        except LockError as error:
            raise EnvironmentFileError(str(error)) from None

    def lock_of(self, text: str) -> str:
        """The locks of an environment as the text that goes with its cells; empty where it has none."""
        return self._locks.get(text, "")

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
