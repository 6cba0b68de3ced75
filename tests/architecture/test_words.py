"""The rules for words that a test can hold: retired words, docstrings, line lengths, ADR headers and the glossary.

Every test collects all places that break its rule and prints them at once, one `file:line: what` per line.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import tokenize
from collections.abc import Iterator
from enum import Enum
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from pharoah_protocol import vocabulary

ROOT = Path(__file__).parents[2]
GLOSSARY = ROOT / "docs" / "glossary.md"
PRODUCT_FOLDERS = ("archetypes/", "proto/", "tenant_sdk/", "benchmarks/", "provider_service/", "auditor/")
MAX_LINE_LENGTH = 120
"""Characters; the line length of `pyproject.toml`."""

NOT_OURS = ("LICENSE", *(f"requirements/{name}.txt" for name in ("build", "dev", "cuda", "lock")))
MAY_QUOTE_RETIRED_WORDS = ("CHANGELOG.md", "docs/glossary.md", "tests/architecture/test_words.py")
ALLOWED_CONTEXTS = {
    "believed": r"foreign_exporter_believed",
    "fence": r"\b(outer|memory)[ _]fences?\b",
    "liar": r"rows_made_by_one_liar|lying_agents",
    "lie": r"\b(lies?|lying) (above|at|below|beside|between|beyond|in|inside|on|outside|there|under|within)\b",
}
"""Contexts in which a retired word is the field's own term, has another meaning, or is part of a name that others have
given: Tukey's outer fences, the position of something, and figures of `evaluation hardening` with their modules."""

BAD_BEGINNINGS = re.compile(r"(Of|Those|That|Whoever)\b")
"""Docstrings that begin so have no subject."""


class RetiredWord(NamedTuple):
    pattern: re.Pattern[str]
    folder: str
    """The word is retired below this folder; an empty string stands for the whole repository."""


class Docstring(NamedTuple):
    line: int
    text: str


# ---- what is read -------------------------------------------------------------------------------------------------


@cache
def tracked_files() -> tuple[str, ...]:
    """Paths of all text files that git tracks, relative to the root of the repository."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    paths = [name for name in listed.split("\0") if name and name not in NOT_OURS and (ROOT / name).is_file()]
    return tuple(name for name in paths if b"\0" not in (ROOT / name).read_bytes()[:1024] and "/corpus/" not in name)


@cache
def lines(name: str) -> tuple[str, ...]:
    return tuple((ROOT / name).read_text(errors="replace").split("\n"))


def files(*suffixes: str, folders: tuple[str, ...] = ("",)) -> list[str]:
    return [name for name in tracked_files() if name.endswith(suffixes) and name.startswith(folders)]


def docstrings(tree: ast.Module) -> Iterator[Docstring]:
    """Docstrings of modules, classes, functions and attributes: each string that stands alone as a statement."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield Docstring(node.lineno, node.value.value)


def comments(name: str) -> Iterator[tuple[int, str]]:
    if name.endswith((".py", ".pyi")):
        for token in tokenize.generate_tokens(io.StringIO((ROOT / name).read_text()).readline):
            if token.type == tokenize.COMMENT:
                yield token.start[0], token.line.rstrip("\n")
    else:
        marks = {".toml": "#", ".proto": "//", ".sql": "--"}
        mark = next(mark for suffix, mark in marks.items() if name.endswith(suffix))
        yield from ((number, line) for number, line in enumerate(lines(name), 1) if line.lstrip().startswith(mark))


# ---- the glossary -------------------------------------------------------------------------------------------------


def table(heading: str) -> list[list[str]]:
    """The cells of the table below `## heading` in the glossary, without its two header rows."""
    text = GLOSSARY.read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    rows = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in rows[2:]]


def retired_words() -> list[RetiredWord]:
    """One pattern for each word and each of its forms. An underscore separates words, so names are searched as well."""
    return [
        RetiredWord(re.compile(rf"(?<![a-z]){re.escape(form).replace(' ', '[ _-]')}(?![a-z])", re.IGNORECASE), folder)
        for forms, _, folder in table("Retired words")
        for form in forms.replace("\\ ", " ").split(", ")
    ]


def in_words(class_name: str) -> str:
    """`EndState` -> `end state`."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", class_name).lower()


def test_the_glossary_is_alphabetical() -> None:
    for heading in ("Terms", "Retired words"):
        terms = [row[0].lower() for row in table(heading)]
        assert len(terms) > 10
        assert terms == sorted(terms, key=lambda term: term.replace("-", " ")), heading
        assert len(terms) == len(set(terms))


def test_the_glossary_defines_each_term_in_one_sentence() -> None:
    for term, meaning in table("Terms"):
        assert meaning[:1].isupper() and meaning.endswith("."), term


def test_the_glossary_names_every_closed_set_of_the_protocol() -> None:
    closed = {
        in_words(name)
        for name, member in vars(vocabulary).items()
        if isinstance(member, type) and issubclass(member, Enum) and len(member)
    }
    missing = sorted(closed - {row[0] for row in table("Terms")})
    assert not missing, f"docs/glossary.md has no row for {missing}"


# ---- the text of the repository -----------------------------------------------------------------------------------


def test_retired_words_are_gone() -> None:
    allowed = re.compile("|".join(ALLOWED_CONTEXTS.values()), re.IGNORECASE)
    retired = retired_words()
    found = []
    for name in tracked_files():
        if name in MAY_QUOTE_RETIRED_WORDS:
            continue
        here = [word.pattern for word in retired if name.startswith(word.folder)]
        numbered = [(0, name), *enumerate(lines(name), 1)]  # line 0 is the name of the file itself
        for number, line in numbered:
            rest = allowed.sub("", line)
            found += [f"{name}:{number}: {match[0]}" for word in here if (match := word.search(rest))]
    assert not found, report("retired words; docs/glossary.md lists what to write instead", found)


def test_docstrings_begin_with_their_subject() -> None:
    found = [
        f"{name}:{docstring.line}: {docstring.text.strip()[:60]}"
        for name in files(".py")
        for docstring in docstrings(ast.parse((ROOT / name).read_text()))
        if BAD_BEGINNINGS.match(docstring.text.strip())
    ]
    assert not found, report("docstrings without a subject", found)


def test_public_modules_classes_and_functions_have_docstrings() -> None:
    found = []
    for name in files(".py", folders=PRODUCT_FOLDERS):
        tree = ast.parse((ROOT / name).read_text())
        if any(part.startswith("_") and part != "__init__.py" for part in Path(name).parts):
            public: list[ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef] = [tree]
        else:
            public = [tree, *public_definitions(tree)]
        for node in public:
            what = f"{name}:{getattr(node, 'lineno', 1)}: {getattr(node, 'name', 'module')}"
            summary = (ast.get_docstring(node) or "").partition("\n\n")[0]
            if not summary:
                found.append(f"{what} has no docstring")
            elif not summary.rstrip().endswith((".", ":")):
                found.append(f"{what}: the first sentence has no full stop")
    assert not found, report("docstrings of public names", found)


def public_definitions(tree: ast.Module) -> Iterator[ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]:
    """Classes and functions of a module whose names do not begin with an underscore. Methods are left out."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_"):
            yield node


def test_lines_of_prose_are_short() -> None:
    found = []
    for name in files(".md"):
        in_code = False
        for number, line in enumerate(lines(name), 1):
            in_code ^= line.lstrip().startswith("```")
            is_prose = not in_code and not line.lstrip().startswith("|") and "](" not in line and "://" not in line
            if is_prose and len(line) > MAX_LINE_LENGTH:
                found.append(f"{name}:{number}: {len(line)} characters")
    assert not found, report("long lines of prose", found)


def test_comments_and_docstrings_are_short() -> None:
    found = []
    for name in files(".py", ".toml", ".proto", ".sql"):
        for number, line in comments(name):
            if len(line) > MAX_LINE_LENGTH and "://" not in line:
                found.append(f"{name}:{number}: {len(line)} characters")
    for name in files(".py"):
        for docstring in docstrings(ast.parse((ROOT / name).read_text())):
            for below in range(docstring.text.count("\n") + 1):
                line = lines(name)[docstring.line - 1 + below]
                if len(line) > MAX_LINE_LENGTH and "://" not in line:
                    found.append(f"{name}:{docstring.line + below}: {len(line)} characters")
    assert not found, report("long comments or docstrings", found)


@pytest.mark.parametrize("name", files(".md", folders=("docs/adr/",)))
def test_every_decision_has_a_status_and_a_date(name: str) -> None:
    head = lines(name)[:6]
    number = int(Path(name).name[:4])
    assert re.match(rf"# {number}\. \S", head[0]), f"{name}:1: the heading must be `# {number}. What was decided`"
    assert any(re.fullmatch(r"Status: (accepted|superseded by \d+).*", line) for line in head), f"{name}: no status"
    assert any(re.fullmatch(r"Date: 20\d\d-[01]\d-[0-3]\d", line) for line in head), f"{name}: no date"


def report(title: str, found: list[str]) -> str:
    """All places, for an assertion's message."""
    return "\n".join([f"{len(found)} places: {title}", *found])
