"""Names of torch that a release may lack stand in `pharoah.torch_names`, and nowhere else."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PLACE = ROOT / "tenant_sdk/pharoah/torch_names.py"
FILES = [
    path
    for folder in ("tenant_sdk/pharoah", "benchmarks/pharoah_benchmarks", "provider_service")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if path != PLACE
]
NEWER = (
    "torch.accelerator",
    "torch.compiler.is_compiling",
    "torch.distributed.fsdp.fully_shard",
    "torch.distributed.tensor.DTensor",
)
"""Public names that the oldest release lacks, or one in which a job must at least train."""
_PRIVATE_TEXT = re.compile(r"torch(\.\w+)*\._[a-zA-Z]")


def private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def is_refused(name: str) -> bool:
    """Whether a dotted name of torch may be absent: a private one, an operator, or one that is newer."""
    parts = name.split(".")
    return any(map(private, parts)) or name.startswith(("torch.ops.", *NEWER))


def chain(node: ast.Attribute) -> tuple[str, ...]:
    """The names of `a.b.c`; the first is empty where it is no name."""
    above = node.value
    first = chain(above) if isinstance(above, ast.Attribute) else (above.id,) if isinstance(above, ast.Name) else ("",)
    return (*first, node.attr)


def docstrings(tree: ast.AST) -> set[int]:
    return {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}


def own_names(trees: list[ast.Module]) -> set[str]:
    """Names that these files define: functions, classes, variables and attributes."""
    found: set[str] = set()
    for node in (node for tree in trees for node in ast.walk(tree)):
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                found.add(name)
            case ast.Attribute(attr=name, ctx=ast.Store()) | ast.Name(id=name, ctx=ast.Store()):
                found.add(name)
    return found


def names_of_torch(tree: ast.Module, ours: set[str]) -> Iterator[tuple[int, str]]:
    """Line and name of everything that must be looked up in the one place."""
    bound: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.partition(".")[0] == "torch":
                    bound[alias.asname or "torch"] = alias.name if alias.asname else "torch"
                    if is_refused(alias.name):
                        yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "torch":
            for alias in node.names:
                name = bound[alias.asname or alias.name] = f"{node.module}.{alias.name}"
                if is_refused(name):
                    yield node.lineno, name
    quoted = docstrings(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            first, *rest = chain(node)
            if first in bound:
                if is_refused(name := ".".join((bound[first], *rest))):
                    yield node.lineno, name
            elif bound and private(node.attr) and first not in ("self", "cls", "sys", "os") and node.attr not in ours:
                yield node.lineno, node.attr
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in quoted:
            if _PRIVATE_TEXT.search(node.value):
                yield node.lineno, node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and "attr" in node.func.id and bound:
            named = [one.value for one in node.args[1:2] if isinstance(one, ast.Constant)]
            if any(isinstance(name, str) and private(name) and name not in ours for name in named):
                yield node.lineno, str(named[0])


def test_names_of_torch_that_may_be_absent_stand_in_one_place() -> None:
    trees = [ast.parse(path.read_text()) for path in FILES]
    ours = own_names(trees)
    found = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path, tree in zip(FILES, trees, strict=True)
        for line, name in names_of_torch(tree, ours)
    ]
    assert not found, "look these up by pharoah.torch_names:\n" + "\n".join(found)


@pytest.mark.parametrize(
    "source",
    [
        "import torch._dynamo",
        "from torch._C import _distributed_c10d as c10d",
        "from torch.distributed.fsdp import fully_shard",
        "import torch\ntorch._C._storage_id(t)",
        "import torch\ntorch.ops.aten.mm(a, b)",
        "import torch\naten = torch.ops.aten",
        "from torch import nn\nnn.Module._apply(m)",
        "import torch\nfirst._base",
        "import torch\ngetattr(torch, '_check_with')",
        "import sys\nsys.modules['torch._dynamo.utils']",
        "import torch\ntorch.accelerator.is_available()",
        "import torch\ntorch.compiler.is_compiling()",
    ],
)
def test_each_way_to_reach_such_a_name_is_seen(source: str) -> None:
    assert list(names_of_torch(ast.parse(source), set()))
