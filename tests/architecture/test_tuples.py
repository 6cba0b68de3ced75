"""What modules hand to each other has named fields: no public annotation is a tuple whose positions have meanings."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = ("archetypes", "proto", "tenant_sdk", "benchmarks", "provider_service", "auditor")
EXEMPTIONS = {
    "archetypes/pharoah_archetypes/devices.py Device.capability": "CUDA writes a compute capability (major, minor)",
    "proto/pharoah_protocol/channels.py Option": "gRPC takes an option as (name, value)",
    "proto/pharoah_protocol/channels.py metadata": "gRPC takes metadata as (key, value)",
    "proto/pharoah_protocol/voprf/pure_python.py Point": "RFC 9496 writes a point with four coordinates in this order",
    "provider_service/pharoah_learning/models/proportions.py wilson": "an interval is written (low, high)",
}
"""By file and name: why the tuple stays. Another library or the notation of a field dictates its positions."""


def fixed_tuples(annotation: ast.expr) -> Iterator[str]:
    """Tuples of a fixed length in an annotation; `tuple[int, ...]` is a sequence and not one of them."""
    for node in ast.walk(annotation):
        if isinstance(node, ast.Subscript) and ast.unparse(node.value) == "tuple" and isinstance(node.slice, ast.Tuple):
            members = node.slice.elts
            if not any(isinstance(member, ast.Constant) and member.value is Ellipsis for member in members):
                yield ast.unparse(node)


def public_annotations(module: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    """Annotations that other modules can rely on: of functions, methods, fields and aliases with public names.

    Functions inside functions and members of private classes belong to their module alone.
    """
    for node in module.body:
        yield from _of_statement(node, "")


def _of_statement(node: ast.stmt, owner: str) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_"):
        given = node.args
        annotated = [node.returns, *(one.annotation for one in [*given.posonlyargs, *given.args, *given.kwonlyargs])]
        annotated += [one.annotation for one in (given.vararg, given.kwarg) if one]
        yield from ((node.name, annotation) for annotation in annotated if annotation)
    elif isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
        for member in node.body:
            yield from _of_statement(member, f"{node.name}.")
    elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and not node.target.id.startswith("_"):
        yield f"{owner}{node.target.id}", node.annotation
    elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Subscript):
        yield from ((one.id, node.value) for one in node.targets if isinstance(one, ast.Name) and one.id[0] != "_")


def found_in(text: str) -> list[str]:
    """Names whose annotation has a tuple of a fixed length, each with the tuple."""
    return [f"{name}: {found}" for name, one in public_annotations(ast.parse(text)) for found in fixed_tuples(one)]


def tuples_of_product() -> list[str]:
    files = [path for source in SOURCES for path in sorted((ROOT / source).rglob("*.py"))]
    return [f"{path.relative_to(ROOT)} {found}" for path in files for found in found_in(path.read_text())]


def test_no_public_annotation_is_a_tuple_with_positions() -> None:
    remaining = [found for found in tuples_of_product() if found.partition(": ")[0] not in EXEMPTIONS]
    assert not remaining, "use a NamedTuple or a frozen dataclass:\n" + "\n".join(remaining)


def test_every_exemption_is_still_needed() -> None:
    assert set(EXEMPTIONS) == {found.partition(": ")[0] for found in tuples_of_product()}


def test_the_check_finds_a_planted_tuple() -> None:
    planted = """
Alias = tuple[int, str]
Lines = tuple[str, ...]
class Public:
    field: dict[str, tuple[int, int]]
    _own: tuple[int, int]
    def method(self, pair: tuple[int, int]) -> tuple[str, ...]: ...
class _Private:
    field: tuple[int, int]
async def function(*, many: list[tuple[bytes, bytes]]) -> tuple[bytes, int]:
    def inside() -> tuple[int, int]: ...
"""
    assert found_in(planted) == [
        "Alias: tuple[int, str]",
        "Public.field: tuple[int, int]",
        "method: tuple[int, int]",
        "function: tuple[bytes, int]",
        "function: tuple[bytes, bytes]",
    ]
