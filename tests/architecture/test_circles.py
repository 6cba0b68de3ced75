"""No circles between modules: a drawing of all imports, wherever they stand, can be read from top to bottom."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("archetypes", "proto", "tenant_sdk", "benchmarks", "provider_service", "auditor")


def modules(folder: Path) -> dict[str, Path]:
    """Dotted name to file, for every module of every package in a folder."""
    found = {}
    for path in sorted(folder.glob("pharoah*/**/*.py")):
        parts = path.relative_to(folder).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(name: str, path: Path, known: dict[str, Path]) -> Iterator[str]:
    """Modules that a module imports, also inside functions and under TYPE_CHECKING.

    `from package import submodule` is an import of the submodule only. An import of a name that the package itself
    defines is an import of the package.
    """
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for statement in ast.walk(ast.parse(path.read_text())):
        if isinstance(statement, ast.Import):
            yield from (alias.name for alias in statement.names if alias.name in known)
        elif isinstance(statement, ast.ImportFrom):
            above = package.split(".")[: 1 - statement.level or None] if statement.level else []
            source = ".".join([*above, *filter(None, [statement.module])])
            for alias in statement.names:
                submodule = f"{source}.{alias.name}"
                if submodule in known:
                    yield submodule
                elif source in known:
                    yield source


def circle(graph: dict[str, set[str]]) -> list[str]:
    """The modules of one circle in their order, or nothing."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return [str(name) for name in reversed(error.args[1])]
    return []


def graph_of(*folders: Path) -> dict[str, set[str]]:
    known = {name: path for folder in folders for name, path in modules(folder).items()}
    return {name: {*imports(name, path, known)} - {name} for name, path in known.items()}


def test_no_module_imports_itself_through_others() -> None:
    graph = graph_of(*(ROOT / folder for folder in FOLDERS))
    assert len(graph) > 150, "the graph lacks modules"
    found = circle(graph)
    assert not found, " -> ".join(found)


@pytest.mark.parametrize(
    ("second", "is_circle"),
    [
        ("import pharoah_x.a", True),
        ("from pharoah_x.a import f", True),
        ("from pharoah_x import a", True),
        ("from . import a", True),
        ("from .a import f", True),
        ("def g():\n    from pharoah_x import a", True),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from pharoah_x.a import f", True),
        ("from pharoah_x import f", True),
        ("from pharoah_x import c", False),
        ("import json", False),
    ],
)
def test_an_import_is_seen_wherever_it_stands(tmp_path: Path, second: str, is_circle: bool) -> None:
    package = tmp_path / "pharoah_x"
    package.mkdir()
    (package / "__init__.py").write_text("from pharoah_x.a import f\n")
    (package / "a.py").write_text("from pharoah_x import b\ndef f(): ...\n")
    (package / "b.py").write_text(second)
    (package / "c.py").write_text("")
    assert bool(circle(graph_of(tmp_path))) is is_circle
