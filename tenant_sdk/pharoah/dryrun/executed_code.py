"""Which code ran: digests of the functions a dry run executed, package by package.

Two versions of a package that execute the same code for a job are one version to this job. Digests hold bytecode,
constants and names, not line numbers, comments or docstrings; they compare within one Python version.
"""

from __future__ import annotations

import hashlib
import inspect
import sys
from collections import defaultdict
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from pharoah_archetypes.inventory import inventory

_TOOL = "pharoah"


class ExecutedCode:
    """Records from `start` to the end of the process; this thread only."""

    def __init__(self) -> None:
        self._seen: set[CodeType] = set()

    def start(self) -> None:
        if sys.version_info >= (3, 12):
            self._monitor()
        else:
            sys.setprofile(self._profiled)

    def digests(self) -> dict[str, str]:
        """Package to 32 hex digits over its functions that ran so far; packages of the inventory only."""
        roots = _roots()
        functions: dict[str, set[str]] = defaultdict(set)
        for code in tuple(self._seen):  # our own functions run as well
            package = next((name for root, name in roots if code.co_filename.startswith(root)), "")
            if package and code.co_flags & inspect.CO_OPTIMIZED:  # functions, not bodies of modules and classes
                functions[package].add(f"{code.co_qualname} {_digest(code)}")
        return {
            package: hashlib.blake2b("\n".join(sorted(found)).encode(), digest_size=16).hexdigest()
            for package, found in sorted(functions.items())
        }

    def _profiled(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            self._seen.add(frame.f_code)

    def _monitor(self) -> None:
        monitoring: Any = sys.monitoring  # type: ignore[attr-defined, unused-ignore]

        def started(code: CodeType, _: int) -> Any:
            self._seen.add(code)
            return monitoring.DISABLE  # once is enough: from here on this function costs nothing

        tool = monitoring.PROFILER_ID
        monitoring.use_tool_id(tool, _TOOL)
        monitoring.register_callback(tool, monitoring.events.PY_START, started)
        monitoring.set_events(tool, monitoring.events.PY_START)


def _roots() -> list[tuple[str, str]]:
    """Folder of each known package that is imported, and its name."""
    roots = []
    for software in inventory():
        path = getattr(sys.modules.get(software.module), "__file__", None)
        if path:
            roots.append((f"{Path(path).parent}/", software.name))
    return sorted(roots, reverse=True)


def _digest(code: CodeType) -> str:
    digest = hashlib.blake2b(code.co_code, digest_size=8)
    for names in (code.co_names, code.co_varnames, code.co_freevars):
        digest.update(repr(names).encode())
    for number, constant in enumerate(code.co_consts):
        if isinstance(constant, CodeType):
            digest.update(_digest(constant).encode())
        elif not (number == 0 and isinstance(constant, str)):  # the docstring
            digest.update(repr(constant).encode() if not isinstance(constant, frozenset) else _sorted(constant))
    return digest.hexdigest()


def _sorted(constant: frozenset[object]) -> bytes:
    """The order of a set changes from process to process."""
    return repr(sorted(map(repr, constant))).encode()
