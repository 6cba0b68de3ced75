"""Public files of SuperBench: what is read and written again is the same.

Each file is read by Pharoah, written, and read again by the readers of JSON and YAML alone, whose data must be equal to
those of the original. `--data` names a folder with files of microsoft/superbenchmark and microsoft/superbench-results:
`*.jsonl` are results, `*rules*.yaml` rules, `baseline.json` and `*_baseline.json` baselines.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

import yaml

from evaluation.figures import Figures
from pharoah_provider.superbench import (
    SuperBenchError,
    baseline_text,
    read_baseline,
    read_results,
    read_rules,
    results_text,
    rules_text,
)

KEY = "superbench_roundtrip_identical"


class Kind(StrEnum):
    """What a file of SuperBench holds."""

    RESULTS = "results"
    BASELINE = "baseline"
    RULES = "rules"


PATTERNS = {
    Kind.RESULTS: ("*.jsonl",),
    Kind.BASELINE: ("baseline.json", "*_baseline.json"),
    Kind.RULES: ("*rules*.yaml", "*rules*.json"),
}
WRITTEN_AGAIN: Mapping[Kind, Callable[[Path], str]] = {
    Kind.RESULTS: lambda path: results_text(read_results(path)),
    Kind.BASELINE: lambda path: baseline_text(read_baseline(path)),
    Kind.RULES: lambda path: rules_text(read_rules(path)),
}


def measure(figures: Figures, arguments: argparse.Namespace) -> None:
    """Read and write all files of `--data`; without it the figure is skipped."""
    if not arguments.data:
        figures.skip(KEY, "needs --data")
        return
    rows, identical = [], True
    for kind, patterns in PATTERNS.items():
        paths = sorted({path for pattern in patterns for path in arguments.data.rglob(pattern)})
        different = [path for path in paths if not roundtrip_is_identical(kind, path)]
        for path in different:
            print(f"  {path}: it is not identical after it was read and written")
        identical &= bool(paths) and not different
        rows.append((str(kind), str(len(paths)), str(len(paths) - len(different))))
    figures.add(KEY, identical, "true", identical)
    figures.table("Public files of SuperBench that Pharoah reads and writes.", ("kind", "files", "identical"), rows)


def roundtrip_is_identical(kind: Kind, path: Path) -> bool:
    """Whether a file that was read and written again has the same data, with the same types of numbers."""
    try:
        again = WRITTEN_AGAIN[kind](path)
    except SuperBenchError as error:
        print(f"  {error}")
        return False
    return _plain(kind, path.read_text()) == _plain(kind, again)


def _plain(kind: Kind, text: str) -> str:
    """The data of a text without Pharoah's readers, as JSON in one order of keys: 1 and 1.0 differ in it."""
    data: Any
    if kind is Kind.RESULTS:
        data = [json.loads(line) for line in text.splitlines() if line.strip()]
    elif kind is Kind.RULES:
        data = yaml.safe_load(text)
    else:
        data = json.loads(text)
    return json.dumps(data, sort_keys=True)
