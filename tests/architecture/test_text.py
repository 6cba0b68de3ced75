"""Text of others reaches a terminal or a log in one way, which keeps away what a terminal would obey."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.test_walls import FOLDERS, modules

WAYS = {
    "pharoah_system/standard_streams.py": "the one way",
    "pharoah_system/log_lines.py": "the one way of logs",
    "pharoah_provider/cli/_display.py": "tables, of printable text only",
    "pharoah_benchmarks/campaign/fork_server.py": "JSON for its parent, which is ASCII",
    "pharoah_benchmarks/campaign/dry_cell.py": "JSON for its parent",
    "pharoah_benchmarks/ceilings.py": "JSON for its parent",
    "pharoah_benchmarks/faults/_beside.py": "one byte for its parent",
    "pharoah_benchmarks/environments/build.py": "the text of a program, which prints JSON for us",
}
"""Modules that may print, and why."""
PRINTING = {
    "print", "pprint", "stdout.write", "stderr.write", "stdout.writelines", "stderr.writelines", "stdout.buffer",
    "stderr.buffer", "__stdout__", "__stderr__", "console.print", "basicConfig", "logging.Formatter", "StreamHandler",
    "FileHandler", "RotatingFileHandler", "SysLogHandler", "traceback.print_exc", "traceback.print_exception",
    "traceback.print_stack", "warnings.warn", "lastResort",
}  # fmt: skip
"""Ends of dotted names that write to a terminal or make a log."""


def ways(source: str) -> Iterator[str]:
    """What of a module prints by itself, as `line: name`."""
    for node in ast.walk(ast.parse(source)):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, (ast.Name, ast.Attribute)):
            names = [ast.unparse(node)]
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "os.write":
            first = node.args[0] if node.args else None
            if isinstance(first, ast.Constant) and first.value in (1, 2):
                yield f"{node.lineno}: os.write({first.value}"
        for name in names:
            if name.split(".")[0] == "rich" or any(name == end or name.endswith(f".{end}") for end in PRINTING):
                yield f"{getattr(node, 'lineno', 0)}: {name}"


@pytest.mark.parametrize("package", FOLDERS)
def test_nothing_else_prints_or_makes_a_log(package: str) -> None:
    found = []
    for path in modules(package):
        name = str(path.relative_to(FOLDERS[package]))
        if name not in WAYS:
            found += [f"{name}:{way}" for way in ways(path.read_text())]
    assert not found, "use `say` and `show` of pharoah_system.standard_streams, `log_to_standard_error` of log_lines"


@pytest.mark.parametrize(
    "source",
    [
        "print(1)",
        "import sys; sys.stderr.write('x')",
        "import sys; sys.stdout.buffer.write(b'x')",
        "import os; os.write(2, b'x')",
        "import logging; logging.basicConfig()",
        "from logging import StreamHandler",
        "import logging as log; log.FileHandler('x')",
        "from rich.console import Console",
        "import traceback; traceback.print_exc()",
        "from pprint import pprint",
        "show = print",
    ],
)
def test_each_other_way_is_seen(source: str) -> None:
    assert list(ways(source))


def test_every_module_that_may_print_exists() -> None:
    assert all((FOLDERS[Path(name).parts[0]] / name).exists() for name in WAYS)
