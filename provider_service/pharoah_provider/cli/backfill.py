"""`pharoah-provider backfill FILE`: what past runs of others say, before anybody schedules cells for it.

The file is read here; nothing is stored, and nothing that it says can block a job. A call or a suspect is a reason to
run randomised cells (`pharoah-provider campaign`).
"""

from __future__ import annotations

import argparse
import json
import math
import textwrap
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pharoah_protocol.attribution import rules
from pharoah_protocol.vocabulary import EndState
from pharoah_provider.backfill import (
    SOURCES,
    BackfillError,
    BackfillSource,
    Imported,
    columns_of,
    read_map,
    read_map_file,
)
from pharoah_provider.cli._display import Column, show_note, show_table
from pharoah_provider.cli._values import count
from pharoah_serving.errors import ProviderError
from pharoah_system.files import write_output
from pharoah_system.standard_streams import show
from pharoah_system.text import sanitize_text

if TYPE_CHECKING:
    from pharoah_learning.effects import EffectFinding
    from pharoah_learning.incompatible_pairs import PairFinding

PIPE_COLUMNS = 80
"""Characters of a line where the output is not a terminal."""
MAX_FINDINGS = 20
"""Findings that are printed; `--out` writes all."""
MAX_VALUE_LENGTH = 30
"""Characters of a value that are printed."""
INDENT = " " * 12
NO_CONTEXT = """
No context is named, so there is nothing to compare: only columns and causes are
printed. A --map names the context: hardware and software of each run."""


def add_parser(commands: Any) -> None:
    """Add this command."""
    what = "read past runs of others and print what they say"
    parser = commands.add_parser("backfill", help=what, description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--map", type=Path, metavar="MAP.toml", help="what the columns of the file are")
    parser.add_argument("--source", choices=list(SOURCES.entries), default="csv", help="kind of file (default: csv)")
    parser.add_argument("--preview", action="store_true", help="only print what each column became and who caused what")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write all findings to this file, as JSON")
    parser.add_argument("--seed", type=count, default=1, help="of the matched pairs that are drawn (default: 1)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print columns, causes and findings. Raises ProviderError that names file, row and column."""
    try:
        imported = columns_of(arguments.file, *_source(arguments))
    except BackfillError as error:
        raise ProviderError(str(error)) from None
    _print_columns(imported)
    _print_causes(imported)
    if arguments.preview:
        return 0
    from pharoah_learning.effects import find_effects  # here and behind the file: they bring scipy, which takes seconds
    from pharoah_learning.incompatible_pairs import find_incompatible_pairs
    from pharoah_learning.past_runs import observations, select_measured

    runs = imported.runs
    pairs = find_incompatible_pairs(observations(runs), arguments.seed)
    effects = find_effects(select_measured(runs)) if runs.clusters else []
    if runs.context:
        _print_findings([*map(_pair_line, pairs), *map(_effect_line, effects)])
    else:
        show(NO_CONTEXT)
    if runs.context and not runs.clusters:
        show("No clusters are named, so hosts cannot be counted: nothing here is more than a suspicion.")
    if arguments.out:
        _write(arguments.out, [*pairs, *effects])
    return 0


def _source(arguments: argparse.Namespace) -> tuple[BackfillSource, Any]:
    source = SOURCES[arguments.source]
    if arguments.map:
        return source, read_map_file(arguments.map)
    if not source.map:
        raise ProviderError(f"--map is missing: files of the source {source.name} have columns of their own")
    return source, read_map(source.map, f"source {source.name}")


def _print_columns(imported: Imported) -> None:
    repeated = f", {imported.repeated} rows list a run again" if imported.repeated else ""
    known = int((imported.runs.archetype != "").sum())
    show(f"{len(imported.runs)} runs{repeated}, {known} of a known archetype")
    rows = [(one.column, one.became, str(one.values), str(one.unknown)) for one in imported.became]
    _show_table(("column", "is", "values", "unknown"), rows, numbers=(2, 3))
    if imported.unused:
        show_note(f"not used: {', '.join(imported.unused)}", PIPE_COLUMNS)


def _print_causes(imported: Imported) -> None:
    """Who caused what, by the rules that spoke."""
    why = {rule.name: rule.why for rule in rules().rules}
    ends = zip(imported.runs.end_state, imported.causes, strict=True)
    counts = Counter((state, cause.attribution, cause.rule) for state, cause in ends)
    rows = [
        (state, "-" if state is EndState.OK else who, str(count), why.get(rule, _note_unexplained(state)))
        for (state, who, rule), count in counts.most_common()
    ]
    show()
    _show_table(("end state", "caused by", "runs", "why"), rows, numbers=(2,))


def _note_unexplained(state: EndState) -> str:
    return "" if state is EndState.OK else "No rule knows what is recorded of them."


class _Line(NamedTuple):
    """One finding as it is printed."""

    call: str
    what: str
    numbers: str
    reason: str


def _print_findings(found: Sequence[_Line]) -> None:
    """All that is not declined, and how much is declined for which reason."""
    from pharoah_learning.effects import EffectCall

    show()
    kept = [one for one in found if one.call != EffectCall.DECLINED]
    for one in kept[:MAX_FINDINGS]:
        show(textwrap.fill(f"{one.call:11} {one.what}", PIPE_COLUMNS, subsequent_indent=INDENT))
        numbers = one.numbers + (f"; {one.reason}" if one.reason else "")
        show(textwrap.fill(numbers, PIPE_COLUMNS, initial_indent=INDENT, subsequent_indent=INDENT))
    if len(kept) > MAX_FINDINGS:
        show(f"and {len(kept) - MAX_FINDINGS} more (--out writes all)")
    for reason, number in Counter(one.reason for one in found if one.call == EffectCall.DECLINED).most_common():
        show(f"declined    {number}: {reason}")
    if not found:
        show("There is nothing to compare.")


def _pair_line(one: PairFinding) -> _Line:
    from pharoah_learning.incompatible_pairs import Call

    call = "called" if one.call is Call.INCOMPATIBLE else str(one.call)
    what = f"{_short(one.archetype)} fails at {_short(one.context)}"
    numbers = f"{one.failures} of {one.runs} runs, else {one.other_failures} of {one.other_runs}; "
    numbers += f"odds x{one.odds_ratio:.2g} [{one.low:.2g}, {one.high:.2g}]; {one.clusters} clusters"
    return _Line(call, what, numbers, one.reason)


def _effect_line(one: EffectFinding) -> _Line:
    what = f"{_short(one.subject)} with {one.column} {_short(one.value)}, against {_short(one.against)}"
    numbers = f"throughput x{one.ratio:.3g} [{one.low:.3g}, {one.high:.3g}]; "
    numbers += f"{one.runs} and {one.other_runs} runs, {one.clusters} clusters; {one.grade}"
    return _Line(str(one.call), what, numbers, one.reason)


def _short(value: str) -> str:
    return sanitize_text(value, MAX_VALUE_LENGTH)


def _show_table(columns: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[int]) -> None:
    described = [Column(column.upper(), right=place in numbers) for place, column in enumerate(columns)]
    show_table(described, rows, PIPE_COLUMNS)


def _as_json(value: Any) -> Any:
    """The value, with None for a number that is infinite or unknown, which JSON does not have."""
    if isinstance(value, dict):
        return {name: _as_json(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_as_json(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _write(path: Path, findings: Sequence[PairFinding | EffectFinding]) -> None:
    try:
        rows = [_as_json(asdict(one)) for one in findings]
        write_output(path, json.dumps(rows, indent=1, default=str, allow_nan=False) + "\n")
    except OSError as error:
        raise ProviderError(f"{path}: {error.strerror}") from None
