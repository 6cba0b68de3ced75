"""`python -m evaluation house`: the shape of the source, its names and pages, against the commit before the rebuilding.

Counted are git's Python files outside tests/, evaluation/ and docs/, the `__init__` of packages apart.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

from evaluation.figures import Figures
from evaluation.house import import_graph, pieces, words
from evaluation.house.source_tree import SourceFile, SourceTree, read_commit, read_working_tree

FIRST_COMMIT = "a5464be6"
"""The last commit before the house was rebuilt; ratios are to it."""
MAX_LISTED = 400
"""Places of each kind in the JSON of `--out`."""


def run(arguments: argparse.Namespace) -> int:
    """All figures. Returns the exit code."""
    figures = Figures("house")
    now, before = read_working_tree(), read_commit(FIRST_COMMIT)
    files = now.product()
    lines = sum(one.lines for one in files)
    _add_shape(figures, files, lines)
    _add_ratios(figures, files, before.product(), lines)
    _add_graph(figures, now)
    _add_words(figures, now, files)
    return figures.finish(arguments)


def _add_shape(figures: Figures, files: Sequence[SourceFile], lines: int) -> None:
    _at_most(figures, "modules_per_1000_lines", 1000 * len(files) / lines, 8.5, f"{len(files)} in {lines} lines")
    _none(figures, "folders_over_16", pieces.find_crowded_folders(files, pieces.find_registry_packages(files)))
    _at_most(figures, "modules_up_to_20_lines", pieces.count_small_modules(files), 30)
    once = [f"{one.path}: {name}" for one in files for name in pieces.find_once_called(one)]
    figures.details["once_called"] = once
    _at_most(figures, "once_called_per_1000_lines", 1000 * len(once) / lines, 8, f"{len(once)} functions")
    _at_most(figures, "import_share", sum(map(pieces.count_import_lines, files)) / lines, 0.08)
    lengths = pieces.measure_functions(files)
    _at_most(figures, "function_lines_p99", pieces.compute_percentile(lengths, 0.99), 50)
    _at_most(figures, "function_lines_longest", lengths[-1], 90)


def _add_ratios(figures: Figures, files: Sequence[SourceFile], first: Sequence[SourceFile], lines: int) -> None:
    lines_before = sum(one.lines for one in first)

    def share_ratio(counted: Callable[[SourceFile], int]) -> float:
        return (sum(map(counted, files)) / lines) / (sum(map(counted, first)) / lines_before)

    _at_most(figures, "lines_ratio", lines / lines_before, 0.95, f"{lines_before} before")
    for name, counted in (("docstring", pieces.count_docstring_lines), ("comment", pieces.count_comment_lines)):
        ratio = share_ratio(counted)
        figures.add(f"{name}_share_ratio", ratio, ">= 1", ratio >= 1)
    names = sum(map(pieces.count_public_names, files)) / sum(map(pieces.count_public_names, first))
    _at_most(figures, "public_names_ratio", names, 1)


def _add_graph(figures: Figures, tree: SourceTree) -> None:
    known = import_graph.map_modules(tree)
    graph = import_graph.build_import_graph(known)
    product = {name: others for name, others in graph.items() if name.startswith("pharoah")}
    product = {name: {other for other in others if other.startswith("pharoah")} for name, others in product.items()}
    _none(figures, "module_circles", [" -> ".join(circle) for circle in import_graph.find_circles(product)])
    packages = import_graph.build_package_graph(product, known)
    _none(figures, "package_circles", [" -> ".join(circle) for circle in import_graph.find_circles(packages)])
    _none(figures, "self_callbacks", import_graph.find_self_callbacks(tree.product()))
    _none(figures, "imports_round_a_door", import_graph.find_imports_round_doors(product, known))
    for own, others in (("evaluation", "tests"), ("tests", "evaluation")):
        crossing = [
            f"{name} -> {other}"
            for name, imported in graph.items()
            for other in imported
            if name.startswith(f"{own}.") and other.startswith(others)
        ]
        _none(figures, f"{own}_imports_{others}", crossing)


def _add_words(figures: Figures, tree: SourceTree, files: Sequence[SourceFile]) -> None:
    _none(figures, "superlative_constants", [name for one in files for name in words.find_superlatives(one)])
    functions = [name for one in files for name in words.list_function_names(one)]
    participles = [name for name in functions if words.is_participle(name)]
    figures.details["participle_names"] = sorted(set(participles))
    share = len(participles) / len(functions)
    _at_most(figures, "participle_names", share, 0.01, f"{len(participles)} of {len(functions)}")
    _none(figures, "of_names", [name for name in functions if name == "of" or name.startswith("of_")])
    _none(figures, "sections_over_400_words", words.find_long_sections(tree.pages))
    tests = [one for path, one in tree.files.items() if path.startswith("tests/")]
    pinned = words.find_text_assertions(tests)
    figures.details["text_assertions"] = pinned
    _at_most(figures, "text_assertions", len(pinned), 100)


def _at_most(figures: Figures, key: str, value: float, bound: float, note: str = "") -> None:
    figures.add(key, value, f"<= {bound:g}", value <= bound, note)


def _none(figures: Figures, key: str, found: Sequence[str]) -> None:
    figures.details[key] = list(found[:MAX_LISTED])
    figures.add(key, len(found), "0", not found, found[0][-40:] if found else "")
