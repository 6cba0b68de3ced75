"""The Python files and pages of one state of the repository: the working tree, or a commit."""

from __future__ import annotations

import ast
import io
import subprocess
import tarfile
import tokenize
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import PurePosixPath
from typing import NamedTuple

from evaluation.pages import ROOT

NOT_PRODUCT = ("tests/", "evaluation/", "docs/")
"""Folders whose files are not counted as the product."""


class SourceFile:
    """One Python file, parsed once."""

    def __init__(self, path: str, text: str) -> None:
        self.path, self.text = PurePosixPath(path), text

    @property
    def is_package(self) -> bool:
        """Whether it is the `__init__` of a package."""
        return self.path.name == "__init__.py"

    @cached_property
    def lines(self) -> int:
        """All lines, as `wc -l` counts them."""
        return self.text.count("\n")

    @cached_property
    def tree(self) -> ast.Module:
        """The syntax tree."""
        return ast.parse(self.text)

    @cached_property
    def tokens(self) -> list[tokenize.TokenInfo]:
        """All tokens."""
        return list(tokenize.generate_tokens(io.StringIO(self.text).readline))

    def functions(self) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
        """All functions and methods, nested ones too."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield node


class SourceTree(NamedTuple):
    """All Python files and pages, by their path from the root."""

    files: Mapping[str, SourceFile]
    pages: Mapping[str, str]
    """Markdown files."""

    def product(self) -> list[SourceFile]:
        """The modules of the product, without the `__init__` of packages."""
        return [one for path, one in self.files.items() if not path.startswith(NOT_PRODUCT) and not one.is_package]


def read_working_tree() -> SourceTree:
    """What git tracks, as it lies in the working tree now."""
    listed = _run_git("ls-files", "-z").decode().split("\0")
    return _as_tree((name, (ROOT / name).read_bytes()) for name in listed if name and (ROOT / name).is_file())


def read_commit(commit: str) -> SourceTree:
    """The same of a commit. Raises subprocess.CalledProcessError if the repository does not have it."""
    with tarfile.open(fileobj=io.BytesIO(_run_git("archive", "--format=tar", commit))) as archive:
        members = [member for member in archive if member.isfile()]
        contents = ((member.name, archive.extractfile(member)) for member in members)
        return _as_tree((name, content.read()) for name, content in contents if content)


def _as_tree(contents: Iterator[tuple[str, bytes]]) -> SourceTree:
    files, pages = {}, {}
    for name, content in contents:
        if name.endswith(".py"):
            files[name] = SourceFile(name, content.decode())
        elif name.endswith(".md"):
            pages[name] = content.decode()
    return SourceTree(files, pages)


def _run_git(*words: str) -> bytes:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, check=True).stdout
