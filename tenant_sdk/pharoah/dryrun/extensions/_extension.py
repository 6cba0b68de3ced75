"""The registry of extensions, and the import system's side of them."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.metadata import Distribution, DistributionFinder
from pathlib import Path
from types import ModuleType
from typing import Any

from pharoah_protocol.registry import Registry

GROUP = "pharoah.extensions"
"""Entry points of this group are extensions of other distributions."""


@dataclass(frozen=True, kw_only=True)
class Extension:
    """One library."""

    name: str
    """What it is imported as."""
    help: str
    distribution: str
    """What it is installed as."""
    version: str
    """The release whose documentation the substitutes follow."""
    modules: Callable[[], Mapping[str, Mapping[str, Any]]]
    """Makes its modules, by their full names: what each of them holds."""
    other_names: tuple[str, ...] = ()
    """What errors of other libraries call it, in small letters."""
    any_name: bool = False
    """Whether every other name of its modules can be had as well: what is written in it is never run."""

    def __post_init__(self) -> None:
        if not self.name.isidentifier():
            raise ValueError(f"name: {self.name!r} is not the name of a module")


@cache
def extensions() -> Registry[Extension]:
    """All extensions by name."""
    return Registry(Extension, "pharoah.dryrun.extensions", GROUP)


def missing_extension(error: ImportError) -> str:
    """The extension that a script cannot import; empty for any other module.

    Libraries check for what they need themselves, and name it in words.
    """
    if isinstance(error, ModuleNotFoundError) and error.name:
        name = error.name.partition(".")[0]
        return name if name in extensions() else ""
    words = set(re.findall(r"[a-z0-9_]+", str(error).lower().replace("-", "_")))
    return next((each.name for each in extensions() if not words.isdisjoint((each.name, *each.other_names))), "")


def substitute(names: Iterable[str]) -> None:
    """Let these extensions be imported from now on."""
    sys.meta_path.append(_Finder({name: extensions()[name] for name in names}))


class _Finder(MetaPathFinder):
    """Finds the modules of extensions that nothing else finds."""

    def __init__(self, wanted: Mapping[str, Extension]) -> None:
        self._wanted = wanted

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        extension = self._wanted.get(fullname.partition(".")[0])
        if extension is None:
            return None
        held = _modules(extension)
        known = any(name == fullname or name.startswith(f"{fullname}.") for name in held)
        return ModuleSpec(fullname, _Loader(extension), is_package=True) if known or extension.any_name else None

    def find_distributions(self, context: DistributionFinder.Context) -> Iterator[Distribution]:
        """What `importlib.metadata` shows: libraries look for versions."""
        for extension in self._wanted.values():
            if context.name is None or _normal(context.name) == _normal(extension.distribution):
                yield _Metadata(extension)


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@cache
def _modules(extension: Extension) -> Mapping[str, Mapping[str, Any]]:
    return extension.modules()


class _Loader(Loader):
    def __init__(self, extension: Extension) -> None:
        self._extension = extension

    def exec_module(self, module: ModuleType) -> None:
        name = module.__name__
        vars(module).update(_modules(self._extension).get(name, {}), __version__=self._extension.version)
        module.__file__ = f"<{name}>"

        def missing(attribute: str) -> Any:
            if f"{name}.{attribute}" in _modules(self._extension):
                return importlib.import_module(f"{name}.{attribute}")
            if self._extension.any_name and not attribute.startswith("__"):
                return Anything()
            raise AttributeError(f"{name}.{attribute} has no substitute in a dry run")

        module.__getattr__ = missing  # type: ignore[method-assign]


class Anything:
    """Stands for any value of a library whose code is never run: it can be called, indexed and asked for attributes."""

    def __call__(self, *_: Any, **__: Any) -> Anything:
        return self

    def __getattr__(self, name: str) -> Anything:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __getitem__(self, _: Any) -> Anything:
        return self


class _Metadata(Distribution):
    def __init__(self, extension: Extension) -> None:
        self._files = {
            "METADATA": f"Metadata-Version: 2.1\nName: {extension.distribution}\nVersion: {extension.version}\n",
            "top_level.txt": f"{extension.name}\n",
        }

    def read_text(self, filename: str) -> str | None:
        return self._files.get(filename)

    def locate_file(self, path: Any) -> Any:
        return Path(path)
