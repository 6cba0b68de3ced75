"""Discovery of what grows by adding one file: the modules of one of our packages, and plug-ins of other distributions.

A plug-in is an entry point: its distribution names a group of ours and a Python object. Nothing here imports more than
the standard library and what the entries themselves import.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import entry_points
from typing import Protocol, TypeVar


class Named(Protocol):
    """An entry of a registry."""

    @property
    def name(self) -> str:
        """Unique in its registry."""


T = TypeVar("T", bound=Named)


class PluginError(ValueError):
    """An entry of a registry that cannot be used; the message names where it comes from and what is wrong with it."""


def discover(package: str, attribute: str, group: str, kind: type[T]) -> dict[str, T]:
    """All entries by name: `attribute` of each public module of `package`, then the entry points of `group`.

    Raises PluginError for an entry that cannot be imported, is not a `kind`, or has the name of another.
    """
    found: dict[str, T] = {}
    places: dict[str, str] = {}
    for place, entry in (*_own(package, attribute), *_foreign(group)):
        if not isinstance(entry, kind):
            raise PluginError(f"{place}: expected a {kind.__name__}, not {type(entry).__name__}")
        if entry.name in found:
            raise PluginError(f"{place}: the name {entry.name!r} is taken by {places[entry.name]}")
        found[entry.name], places[entry.name] = entry, place
    return found


def _own(package: str, attribute: str) -> Iterator[tuple[str, object]]:
    for module in sorted(pkgutil.iter_modules(import_module(package).__path__), key=lambda module: module.name):
        if not module.name.startswith("_"):
            place = f"{package}.{module.name}"
            yield place, getattr(import_module(place), attribute, None)


def _foreign(group: str) -> Iterator[tuple[str, object]]:
    for entry in sorted(entry_points(group=group), key=lambda entry: (entry.name, entry.value)):
        place = f"entry point {entry.name} = {entry.value} ({group})"
        try:
            yield place, entry.load()
        except Exception as error:  # code of somebody else may raise anything
            raise PluginError(f"{place}: cannot be loaded: {type(error).__name__}: {error}") from error
