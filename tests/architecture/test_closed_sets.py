"""Closed sets are enums: product code never compares one of their members with a bare string."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = ("archetypes", "proto", "tenant_sdk", "benchmarks", "provider_service", "auditor")
CLOSED = {
    "attribution",
    "fault",
    "gate",
    "kind",
    "letter",
    "mode",
    "operator_class",
    "outcome",
    "phase",
    "privacy",
    "purpose",
    "role",
    "rung",
    "scope",
    "severity",
    "state",
    "status",
    "verb",
}
"""Names of variables and fields that hold a member of a closed set."""


def python_files() -> Iterator[Path]:
    for source in SOURCES:
        yield from sorted((ROOT / source).rglob("*.py"))


def held(node: ast.expr) -> str:
    """The last name of an expression: `status` of `verdict.status`, `role` of `line["role"]`."""
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        return str(node.slice.value)
    return ""


def bare_strings(node: ast.expr) -> list[str]:
    parts = node.elts if isinstance(node, (ast.Tuple, ast.List, ast.Set)) else [node]
    return [part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str)]


def comparisons(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and text of each comparison, or match, of a closed set with a bare string."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            if any(held(side) in CLOSED for side in sides) and any(any(bare_strings(side)) for side in sides):
                yield node.lineno, ast.unparse(node)
        elif isinstance(node, ast.Match) and held(node.subject) in CLOSED:
            for case in node.cases:
                for part in ast.walk(case.pattern):
                    if isinstance(part, ast.MatchValue) and bare_strings(part.value):
                        yield case.pattern.lineno, f"case {ast.unparse(case.pattern)}"


def test_no_closed_set_is_compared_with_a_bare_string() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {text}"
        for path in python_files()
        for line, text in comparisons(ast.parse(path.read_text()))
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "source",
    ["x.status == 'ok'", "line['role'] != 'tenant'", "kind in ('a', 'b')", "match op.verb:\n case 'hello': pass"],
)
def test_the_check_finds_bare_strings(source: str) -> None:
    assert list(comparisons(ast.parse(source)))


def test_the_check_lets_enums_and_empty_strings_pass() -> None:
    assert not list(comparisons(ast.parse("x.status == Status.OK\nx.state == ''\nname == 'total'")))
