"""Registries: sets that grow. One file adds one entry, in our own package or in anybody else's distribution.

Our entries stand in the public modules of one package, one entry per module; a module whose name begins with an
underscore holds what they share. Other distributions name theirs in an entry-point group of the Python packaging
standard (packaging.python.org/specifications/entry-points): the value of the entry point is the entry itself, for
example `ours.benchmarks:BANDWIDTH`.
"""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any, Generic, Protocol, TypeVar


class Named(Protocol):
    """What every entry of a registry has."""

    @property
    def name(self) -> str:
        """Unique within its registry; this is what users type and what is stored."""
        ...


T = TypeVar("T", bound=Named)


class RegistryError(ValueError):
    """An entry that cannot be used; the message names the module or the entry point."""


class Registry(Generic[T]):
    """All entries of one kind, read once when they are first needed.

    The constructors of `kind` check the fields of an entry and raise ValueError.
    """

    def __init__(self, kind: type[T], package: str, group: str, *, unique: Sequence[str] = ()) -> None:
        """`package` is the dotted name of the package whose modules hold our entries, `group` the entry-point group.

        `unique` names further attributes that no two entries may share, such as a code on the wire.
        """
        self._kind, self._package, self._group, self._unique = kind, package, group, ("name", *unique)

    def __iter__(self) -> Iterator[T]:
        return iter(self.entries.values())

    def __contains__(self, name: object) -> bool:
        return name in self.entries

    def without_others(self, name: str) -> T | None:
        """The entry of ours whose module has its name; None where there is none. No other one is loaded, which takes
        seconds for some registries. Raises RegistryError."""
        module = f"{self._package}.{name.replace('-', '_')}"
        if name.startswith("_") or not name.replace("-", "_").isidentifier() or not importlib.util.find_spec(module):
            return None
        entry = self._entry(module)
        return entry if entry.name == name else None

    def __getitem__(self, name: str) -> T:
        """Raises RegistryError that lists the names there are."""
        if name not in self.entries:
            raise RegistryError(f"{name!r} is not one of: {', '.join(self.entries)}")
        return self.entries[name]

    @cached_property
    def entries(self) -> Mapping[str, T]:
        """Name to entry, in the order of the names. Raises RegistryError."""
        found: dict[str, T] = {}
        for origin, entry in [*self._ours(), *self._others()]:
            for attribute in self._unique:
                value = getattr(entry, attribute)
                if any(getattr(other, attribute) == value for other in found.values()):
                    raise RegistryError(f"{origin}: {self._group} has an entry with the {attribute} {value!r} already")
            found[entry.name] = entry
        return dict(sorted(found.items()))

    def _ours(self) -> Iterator[tuple[str, T]]:
        package = importlib.import_module(self._package)
        for module in pkgutil.iter_modules(package.__path__, f"{self._package}."):
            if module.name.rpartition(".")[2].startswith("_"):
                continue
            yield module.name, self._entry(module.name)

    def _entry(self, module: str) -> T:
        """The entry of one of our modules. Raises RegistryError."""
        entries = [value for value in vars(importlib.import_module(module)).values() if isinstance(value, self._kind)]
        if len(entries) != 1:
            raise RegistryError(f"{module}: has {len(entries)} entries of {self._group}, expected one")
        return entries[0]

    def _others(self) -> Iterator[tuple[str, T]]:
        for point in _entry_points(tuple(sys.path)).select(group=self._group):
            origin = f"entry point {point.name!r} of {self._group} ({point.value})"
            try:
                entry = point.load()
            except Exception as error:
                raise RegistryError(f"{origin} cannot be loaded: {type(error).__name__}: {error}") from error
            if not isinstance(entry, self._kind):
                raise RegistryError(f"{origin} is a {type(entry).__name__}, expected a {self._kind.__name__}")
            yield origin, entry


@lru_cache(maxsize=1)
def _entry_points(search_path: tuple[str, ...]) -> Any:  # noqa: ARG001 - they are those of this path
    """All entry points of all distributions: finding them reads a file of each, which takes 30 ms and more."""
    from importlib import metadata  # here: it brings the parser of e-mails, and not every command needs it

    return metadata.entry_points()
