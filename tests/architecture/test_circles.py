"""No circles between modules: a drawing of all imports, wherever they stand, can be read from top to bottom."""

from __future__ import annotations

import pytest

from evaluation.house.import_graph import build_import_graph, find_circles, map_modules
from evaluation.house.source_tree import SourceFile, read_working_tree


def test_no_module_imports_itself_through_others() -> None:
    known = map_modules(read_working_tree())
    graph = build_import_graph({name: one for name, one in known.items() if name.startswith("pharoah")})
    assert len(graph) > 150, "the graph lacks modules"
    found = find_circles(graph)
    assert not found, "\n".join(" -> ".join(circle) for circle in found)


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
def test_an_import_is_seen_wherever_it_stands(second: str, is_circle: bool) -> None:
    texts = {
        "__init__.py": "from pharoah_x.a import f\n",
        "a.py": "from pharoah_x import b\ndef f(): ...\n",
        "b.py": second,
        "c.py": "",
    }
    names = {"__init__.py": "pharoah_x"}
    known = {names.get(path, f"pharoah_x.{path[0]}"): SourceFile(path, text) for path, text in texts.items()}
    assert bool(find_circles(build_import_graph(known))) is is_circle
