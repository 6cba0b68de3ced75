"""Which code ran: digests of the functions a dry run executed, package by package.

Two versions of a package that execute the same code for a job are one version to this job. A digest holds for each
function its bytecode, constants and names, not line numbers, comments or docstrings. Code that runs while a module is
imported does not count, and what it has left behind does (`left_behind`): values that the functions read. A package
with native code that is loaded counts with its version instead, because native code cannot be compared. Digests compare
within one version of Python.
"""

from __future__ import annotations

import hashlib
import inspect
import sys
from collections import defaultdict
from collections.abc import Mapping
from importlib.machinery import EXTENSION_SUFFIXES
from types import CodeType, FrameType
from typing import Any

from pharoah.capture.inventory import find_loaded_version
from pharoah.dryrun.left_behind import find_left_behind
from pharoah_archetypes.inventory import inventory

_TOOL = "pharoah"
_BODY = "<module>"
"""The name of the code of a module."""


class ExecutedCode:
    """Records from `start` to the end of the process; this thread only."""

    def __init__(self, further: Mapping[str, str] | None = None) -> None:
        """`further`: modules of packages that count besides those of the inventory, with the names of the packages."""
        self._packages = {**(further or {}), **{software.module: software.name for software in inventory()}}
        self._seen: dict[CodeType, str] = {}
        """Code to the name of its module."""
        self._imports = 0
        """How many modules of these packages are being imported, each by the one before."""

    def start(self) -> None:
        if sys.version_info >= (3, 12):
            self._monitor()
        else:
            sys.setprofile(self._profile)

    def digests(self) -> dict[str, str]:
        """Package to 32 hex digits over its functions that ran so far, and what they read."""
        functions: dict[str, set[str]] = defaultdict(set)
        ran: dict[CodeType, str] = {}
        for code, module in tuple(self._seen.items()):  # our own functions run as well
            package = self._package(module)
            if package and code.co_flags & inspect.CO_OPTIMIZED:  # functions, not bodies of classes
                functions[package].add(f"{module} {code.co_qualname} {_digest(code)}")
                ran[code] = module
        native = {
            package: find_loaded_version(package, module.partition(".")[0])
            for module in tuple(sys.modules)
            if _is_native(module) and (package := self._package(module))
        }
        for package in functions.keys() & native.keys():
            functions[package].add(f"native {native[package]}")
        for module, text in find_left_behind(
            {code: name for code, name in ran.items() if self._package(name) not in native}
        ):
            functions[self._package(module)].add(text)
        return {
            package: hashlib.blake2b("\n".join(sorted(found)).encode(), digest_size=16).hexdigest()
            for package, found in sorted(functions.items())
        }

    def _package(self, module: str) -> str:
        """The package of a module; empty for a module that does not count."""
        return self._packages.get(module.partition(".")[0], "")

    def _profile(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            self._note_call(frame.f_code, frame.f_globals)
        elif event == "return":
            self._return(frame.f_code, frame.f_globals)

    def _note_call(self, code: CodeType, variables: dict[str, Any]) -> None:
        if code.co_name == _BODY and self._package(_module(variables)):
            self._imports += 1
        elif not self._imports and code not in self._seen:
            self._seen[code] = _module(variables)

    def _return(self, code: CodeType, variables: dict[str, Any]) -> None:
        if code.co_name == _BODY and self._package(_module(variables)):
            self._imports -= 1

    def _monitor(self) -> None:
        monitoring: Any = sys.monitoring  # type: ignore[attr-defined, unused-ignore]

        def note_start(code: CodeType, _: int) -> Any:
            self._note_call(code, sys._getframe(1).f_globals)
            # Once is enough: from here on this function costs nothing.
            return None if self._imports or code.co_name == _BODY else monitoring.DISABLE

        def note_end(code: CodeType, *_: Any) -> Any:
            self._return(code, sys._getframe(1).f_globals)
            return None if code.co_name == _BODY else monitoring.DISABLE

        def unwound(code: CodeType, *_: Any) -> None:
            self._return(code, sys._getframe(1).f_globals)

        tool, events = monitoring.PROFILER_ID, monitoring.events
        monitoring.use_tool_id(tool, _TOOL)
        monitoring.register_callback(tool, events.PY_START, note_start)
        monitoring.register_callback(tool, events.PY_RETURN, note_end)
        monitoring.register_callback(tool, events.PY_UNWIND, unwound)
        monitoring.set_events(tool, events.PY_START | events.PY_RETURN | events.PY_UNWIND)


def _module(variables: Mapping[str, Any]) -> str:
    name = variables.get("__name__")
    return name if isinstance(name, str) else ""


def _is_native(module: str) -> bool:
    file = getattr(sys.modules.get(module), "__dict__", {}).get("__file__")
    return isinstance(file, str) and file.endswith(tuple(EXTENSION_SUFFIXES))


def _digest(code: CodeType) -> str:
    digest = hashlib.blake2b(code.co_code, digest_size=8)
    for names in (code.co_names, code.co_varnames, code.co_freevars):
        digest.update(repr(names).encode())
    for number, constant in enumerate(code.co_consts):
        if isinstance(constant, CodeType):
            digest.update(_digest(constant).encode())
        elif not (number == 0 and isinstance(constant, str)):  # the docstring
            digest.update(repr(constant).encode() if not isinstance(constant, frozenset) else _sort(constant))
    return digest.hexdigest()


def _sort(constant: frozenset[object]) -> bytes:
    """The order of a set changes from process to process."""
    return repr(sorted(map(repr, constant))).encode()
