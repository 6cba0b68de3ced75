"""Who imports whom: circles, imports that go round a package's door, and callbacks that hide a circle."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter

from evaluation.house.source_tree import SourceFile, SourceTree

SOURCE_ROOTS = ("archetypes", "proto", "tenant_sdk", "benchmarks", "provider_service", "auditor", "testing")
"""Folders whose packages are installed."""
Graph = Mapping[str, set[str]]


def map_modules(tree: SourceTree) -> dict[str, SourceFile]:
    """Dotted name to file, for all modules and packages of the product, of evaluation and of tests."""
    found = {}
    for path, one in tree.files.items():
        root, _, inside = path.partition("/")
        if root in SOURCE_ROOTS and inside.startswith("pharoah"):
            found[_dotted(inside)] = one
        elif root in ("evaluation", "tests"):
            found[_dotted(path)] = one
    return found


def _dotted(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def read_imports(name: str, one: SourceFile, known: Mapping[str, SourceFile]) -> Iterator[str]:
    """What a module imports, wherever the import stands. `from package import submodule` imports the submodule."""
    package = name if one.is_package else name.rpartition(".")[0]
    for statement in ast.walk(one.tree):
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


def build_import_graph(known: Mapping[str, SourceFile]) -> dict[str, set[str]]:
    """Module to the modules that it imports."""
    return {name: {*read_imports(name, one, known)} - {name} for name, one in known.items()}


def build_package_graph(graph: Graph, known: Mapping[str, SourceFile]) -> dict[str, set[str]]:
    """Package to the packages that its own modules import from, those around it and inside it left out."""
    found: dict[str, set[str]] = {}
    for name, imported in graph.items():
        own = _package_of(name, known)
        others = {_package_of(other, known) for other in imported}
        found.setdefault(own, set()).update(other for other in others if not _is_around(own, other))
    return found


def _package_of(name: str, known: Mapping[str, SourceFile]) -> str:
    return name if known[name].is_package else name.rpartition(".")[0]


def _is_around(one: str, other: str) -> bool:
    """Whether one of two packages is in the other, or they are the same."""
    return f"{one}.".startswith(f"{other}.") or f"{other}.".startswith(f"{one}.")


def find_circles(graph: Graph) -> list[list[str]]:
    """Circles of a graph; one at a time is opened, so that each is found once."""
    open_graph = {name: set(others) for name, others in graph.items()}
    found = []
    while True:
        try:
            TopologicalSorter(open_graph).prepare()
        except CycleError as error:
            circle = [str(name) for name in reversed(error.args[1])]
            found.append(circle)
            open_graph[circle[0]].discard(circle[1])
            continue
        return found


def find_imports_round_doors(graph: Graph, known: Mapping[str, SourceFile]) -> list[str]:
    """Imports of a module from outside the package that it is in: they go round the door, which is the `__init__`."""
    return sorted(
        f"{name} -> {other}"
        for name, imported in graph.items()
        for other in imported
        if not known[other].is_package and not f"{name}.".startswith(f"{other.rpartition('.')[0]}.")
    )


def find_self_callbacks(files: Iterable[SourceFile]) -> list[str]:
    """Bound methods that a class hands to parts which it makes: each is an arrow back that no import shows."""
    found = []
    for one in files:
        for cls in ast.walk(one.tree):
            if isinstance(cls, ast.ClassDef):
                found += [f"{one.path}:{line}: {text}" for line, text in _handed_methods(cls)]
    return found


def _handed_methods(cls: ast.ClassDef) -> Iterator[tuple[int, str]]:
    functions = [node for node in cls.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    methods = {f.name for f in functions if not any("property" in ast.unparse(d) for d in f.decorator_list)}
    for node in ast.walk(cls):
        parts: list[ast.Call] = []
        match node:
            case ast.Assign(targets=targets, value=value) if any(_is_own_attribute(one) for one in _flat(targets)):
                parts = [one for one in ast.walk(value) if isinstance(one, ast.Call) and _makes_part(one)]
            case ast.AnnAssign(target=target, value=ast.expr() as value) if _is_own_attribute(target):
                parts = [one for one in ast.walk(value) if isinstance(one, ast.Call) and _makes_part(one)]
            case ast.Call(func=ast.Attribute(value=owner)) if _is_own_attribute(owner):
                parts = [node]
        for part in parts:
            for argument in [*part.args, *(keyword.value for keyword in part.keywords)]:
                for inner in ast.walk(argument):
                    is_method = isinstance(inner, ast.Attribute) and _is_own_attribute(inner) and inner.attr in methods
                    if isinstance(inner, ast.Attribute) and is_method and not _is_called(inner, argument):
                        yield inner.lineno, ast.unparse(inner)


def _flat(targets: Iterable[ast.expr]) -> Iterator[ast.expr]:
    for target in targets:
        yield from target.elts if isinstance(target, ast.Tuple) else [target]


def _is_own_attribute(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"


def _makes_part(call: ast.Call) -> bool:
    name = ast.unparse(call.func).rpartition(".")[2].lstrip("_")
    return name[:1].isupper() and "Thread" not in name  # a thread runs a method; it is no part that calls back


def _is_called(attribute: ast.AST, inside: ast.AST) -> bool:
    """Whether `self.x` stands there as `self.x()`. Within a lambda that is a callback all the same."""
    if any(isinstance(node, ast.Lambda) and attribute in ast.walk(node) for node in ast.walk(inside)):
        return False
    return any(isinstance(node, ast.Call) and node.func is attribute for node in ast.walk(inside))
