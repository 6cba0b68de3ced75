"""Names and prose: what a reader whose second language is English stumbles over, as far as a script can count it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping

from evaluation.house.source_tree import SourceFile

SUPERLATIVE = re.compile(r"^_?(MOST|LEAST|LARGEST|LONGEST)_|_(MOST|LEAST|LARGEST|LONGEST)_")
"""The field writes MAX_ and MIN_."""
IRREGULAR_PARTICIPLES = frozenset({
    "begun", "bound", "bought", "brought", "built", "caught", "chosen", "drawn", "driven", "fallen", "forgotten",
    "found", "given", "gone", "grown", "held", "kept", "known", "left", "lost", "made", "meant", "met", "paid",
    "said", "seen", "sent", "shown", "sold", "spent", "stood", "sworn", "taken", "thrown", "understood",
    "won", "worn", "written",
})  # fmt: skip
NO_PARTICIPLES = frozenset({
    "bed", "embed", "exceed", "feed", "need", "proceed", "red", "seed", "shed", "speed", "succeed",
})  # fmt: skip
MAX_SECTION_WORDS = 400
MIN_SENTENCE_WORDS = 4


def find_superlatives(one: SourceFile) -> Iterator[str]:
    """Constants of modules and classes that say `most` where the field says `max`."""
    for node in ast.walk(one.tree):
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        for target in targets:
            for name in ast.walk(target):
                if isinstance(name, ast.Name) and name.id.isupper() and SUPERLATIVE.search(name.id):
                    yield name.id


def list_function_names(one: SourceFile) -> Iterator[str]:
    """Names of functions without the underscores around them. Properties are no functions to who uses them."""
    for function in one.functions():
        decorators = " ".join(ast.unparse(decorator) for decorator in function.decorator_list)
        if "property" not in decorators and "setter" not in decorators and not function.name.startswith("__"):
            yield function.name.strip("_")


def is_participle(name: str) -> bool:
    """Whether a name begins with a past participle, such as `rendered` for `render`."""
    first = name.partition("_")[0]
    return first in IRREGULAR_PARTICIPLES or (first.endswith("ed") and first not in NO_PARTICIPLES)


def find_long_sections(pages: Mapping[str, str]) -> list[str]:
    """Sections whose prose is so long that a reader wants a heading; code and tables are not counted."""
    found = []
    for page, text in pages.items():
        heading, words, in_code = "", 0, False
        for line in [*text.splitlines(), "# end"]:
            if line.startswith("```"):
                in_code = not in_code
            elif not in_code and line.startswith("#"):
                if words > MAX_SECTION_WORDS:
                    found.append(f"{page}: {heading or 'before the first heading'} ({words} words)")
                heading, words = line.lstrip("# "), 0
            elif not in_code and not line.startswith(("|", "<!--")):
                words += len(line.split())
    return found


def find_text_assertions(files: Iterable[SourceFile]) -> list[str]:
    """Assertions that compare a sentence: they break whenever somebody writes it better."""
    found = []
    for one in files:
        for node in ast.walk(one.tree):
            compared: list[ast.expr] = []
            if isinstance(node, ast.Assert):
                compared = [
                    side for test in ast.walk(node.test) if isinstance(test, ast.Compare) for side in _sides(test)
                ]
            elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("raises"):
                compared = [keyword.value for keyword in node.keywords if keyword.arg == "match"]
            if any(_is_sentence(side) for side in compared):
                found.append(f"{one.path}:{getattr(node, 'lineno', 0)}")
    return found


def _sides(comparison: ast.Compare) -> list[ast.expr]:
    return [comparison.left, *comparison.comparators]


def _is_sentence(node: ast.expr) -> bool:
    texts = [part.value for part in ast.walk(node) if isinstance(part, ast.Constant) and isinstance(part.value, str)]
    return any(len(re.findall(r"[A-Za-z]{2,}", text)) >= MIN_SENTENCE_WORDS and " " in text for text in texts)
