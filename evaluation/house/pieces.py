"""How the source is cut: modules, folders, functions, and the share of imports, docstrings and comments."""

from __future__ import annotations

import ast
import tokenize
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from evaluation.house.source_tree import SourceFile

MAX_FILES_OF_FOLDER, MAX_FILES_OF_REGISTRY = 16, 30
SMALL_MODULE_LINES = 20


def find_crowded_folders(files: Iterable[SourceFile], registries: frozenset[str]) -> list[str]:
    """Folders with more modules than a reader keeps in mind. `registries`: packages of which each file is an entry."""
    counted = Counter(str(one.path.parent) for one in files)
    return [
        f"{folder} ({count})"
        for folder, count in sorted(counted.items())
        if count > (MAX_FILES_OF_REGISTRY if _is_registry(folder, registries) else MAX_FILES_OF_FOLDER)
    ]


def _is_registry(folder: str, registries: frozenset[str]) -> bool:
    dotted = folder.replace("/", ".")
    return any(dotted.endswith(name) for name in registries)


def find_registry_packages(files: Iterable[SourceFile]) -> frozenset[str]:
    """The packages that are named where a registry is made."""
    found = set()
    for one in files:
        if "Registry(" not in one.text:
            continue
        for node in ast.walk(one.tree):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "Registry" and len(node.args) >= 2:
                name = node.args[1]
                found |= {str(name.value)} if isinstance(name, ast.Constant) else set()
    return frozenset(found)


def count_small_modules(files: Iterable[SourceFile]) -> int:
    """Modules that hold next to nothing."""
    return sum(one.lines <= SMALL_MODULE_LINES for one in files)


def find_once_called(one: SourceFile) -> list[str]:
    """Private functions of a module whose name occurs once more in it: each is a jump for the reader."""
    names = Counter(token.string for token in one.tokens if token.type == tokenize.NAME)
    private = {f.name for f in one.functions() if f.name.startswith("_") and not f.name.endswith("__")}
    return sorted(name for name in private if names[name] == 2)


def count_import_lines(one: SourceFile) -> int:
    """Lines of import statements, wherever they stand."""
    return sum(
        (node.end_lineno or node.lineno) - node.lineno + 1
        for node in ast.walk(one.tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
    )


def count_docstring_lines(one: SourceFile) -> int:
    """Lines of strings that stand alone as a statement: docstrings of modules, classes, functions and attributes."""
    return sum(
        (node.end_lineno or node.lineno) - node.lineno + 1
        for node in ast.walk(one.tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    )


def count_comment_lines(one: SourceFile) -> int:
    """Comments that say something: what tools read (`noqa`, `type: ignore`, `fmt`) is left out."""
    marks = ("# noqa", "# type:", "# fmt:", "#!")
    return sum(token.type == tokenize.COMMENT and not token.string.startswith(marks) for token in one.tokens)


def measure_functions(files: Iterable[SourceFile]) -> Sequence[int]:
    """Lines of each function, sorted."""
    return sorted((f.end_lineno or f.lineno) - f.lineno + 1 for one in files for f in one.functions())


def compute_percentile(values: Sequence[int], share: float) -> float:
    """The value that this share of all is below."""
    return float(np.percentile(values, 100 * share))


def count_public_names(one: SourceFile) -> int:
    """Names of a module that another may use: classes, functions and assigned names without an underscore."""
    count = 0
    for node in one.tree.body:
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                count += not name.startswith("_")
            case ast.Assign(targets=targets):
                names = [name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)]
                count += sum(not name.startswith("_") for name in names)
            case ast.AnnAssign(target=ast.Name(id=name)):
                count += not name.startswith("_")
    return count
