"""`pharoah-provider table show ROW`: print the evidence of one row, and the runs behind it."""

from __future__ import annotations

import argparse
import json
import textwrap
import time
from collections.abc import Iterator, Sequence
from typing import Any

from pharoah_archetypes.remedies import remedy
from pharoah_protocol.v1 import ShowRowRequest
from pharoah_protocol.vocabulary import Outcome, Provenance
from pharoah_provider import channel
from pharoah_provider.cli._calls import call
from pharoah_serving.errors import ProviderError
from pharoah_system.bounded_reading import parse_json
from pharoah_system.standard_streams import show
from pharoah_system.text import render_value, sanitize_text

COLUMNS = 80
INDENT = 14
SHOWN_RUNS = 20
"""Runs that are printed unless all are asked for."""

Row = dict[str, Any]


def add_parser(actions: Any) -> None:
    """Add this action."""
    what = "print the evidence of one row: counts, odds ratio, sensitivity, and the runs behind it"
    parser = actions.add_parser("show", help=what, description=__doc__)
    parser.add_argument("row", help="id of the row, as `table` lists it")
    parser.add_argument("--all", action="store_true", help=f"print all runs, not the first {SHOWN_RUNS}")
    parser.add_argument("-o", "--output", choices=["text", "json"], default="text")
    channel.add_options(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Raises ProviderError for a call that is refused."""
    content = call(arguments, "ShowRow", ShowRowRequest(row=arguments.row)).content
    try:
        row = parse_json(content, "the row")
        if arguments.output == "json":
            show(json.dumps(row, indent=1))
            return 0
        lines = [*_statement(row), *_evidence(row), *_runs(row, None if arguments.all else SHOWN_RUNS)]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError):
        raise ProviderError(f"the provider's answer is not a row: {render_value(content)}") from None
    for line in lines:
        show(sanitize_text(line))
    return 0


def _statement(row: Row) -> Iterator[str]:
    """What the row says, about which jobs and nodes."""
    revoked = " (revoked)" if row["revoked"] else ""
    yield f"row {row['id']} of release {row['release']}{revoked}"
    yield from _entry("job", row["title"] or "-")
    yield from _entry("says", "ok: it ran" if _works(row) else f"{row['severity']}: {row['outcome']}")
    nodes = f", nodes {' '.join(row['nodes'])}" if row["nodes"] else ""
    yield from _entry("where", f"{row['scope']} {row['group_id']}{nodes}")
    yield from _entry("rung", f"{row['rung']}: {' '.join(row['tokens'])}")


def _evidence(row: Row) -> Iterator[str]:
    yield from _entry("failed", _count(row["failures"], row["runs"], row["rate"]))
    if not _works(row):
        yield from _compare(row)
    yield from _entry("q", "none: " + _WITHOUT_Q.get(row["provenance"], "the row was counted, not tested"))
    yield from _entry("evidence", f"{row['provenance']}, {row['grade']}, id {row['evidence'] or '-'}")
    yield from _entry("remedy", remedy(row["remedy"]) or "-")


def _works(row: Row) -> bool:
    """Whether the row says that a job works: then there is no failure to compare with that of controls."""
    return Outcome(row["outcome"]) is Outcome.OK


def _compare(row: Row) -> Iterator[str]:
    yield from _entry("controls", _count(row["base_failures"], row["base_runs"], row["base_rate"]))
    odds = row["odds_ratio"]
    if odds["value"] is None:
        yield from _entry("odds ratio", "unknown: there are no controls")
    else:
        high = "no upper end" if odds["high"] is None else f"{odds['high']:.3g}"
        yield from _entry("odds ratio", f"{odds['value']:.3g}, exact interval {odds['low']:.3g} to {high}")
    blocks = row["blocks"]
    if blocks["pairs"]:
        yield from _entry(
            "blocks",
            f"{blocks['pairs']} with a control on the same node: in {blocks['against']} only this job failed, in "
            f"{blocks['for_it']} only the control; e-value {blocks['e_value']:.3g}, p {blocks['p']:.2g}",
        )
        yield from _entry("sensitivity", _sensitivity(blocks["sensitivity"]))
    else:
        yield from _entry("blocks", "none with a control: nothing was compared on one node within minutes")
        yield from _entry("sensitivity", "unknown without such blocks")


_WITHOUT_Q = {
    Provenance.CAMPAIGN: "a row of a campaign is counted by node, and not chosen by a test among many",
    Provenance.IMPORTED: "another provider has counted it, and its trials are not here",
    Provenance.ORGANISATIONS: "organisations are counted; nobody can test what they share",
}


def _sensitivity(gamma: float) -> str:
    if gamma <= 1:
        return f"Gamma {gamma:.2g}: chance could explain the blocks"
    return (
        f"Gamma {gamma:.2g}: a hidden cause must make a run {gamma:.2g} times likelier to be this job to explain them"
    )


def _count(failures: int, runs: int, interval: Sequence[float]) -> str:
    if not runs:
        return "no runs"
    low, high = interval
    return f"{failures} of {runs}, rate {failures / runs:.2f} [{low:.2f}, {high:.2f}]"


def _runs(row: Row, most: int | None) -> Iterator[str]:
    for name, what in (("trials", "runs behind it"), ("controls", "controls")):
        runs = row[name]
        yield ""
        if not runs:
            yield f"{what}: none that are stored"
            continue
        yield f"{what}: {len(runs)}"
        shown = runs[:most]
        yield from _table([["TRIAL", "NODE", "BLOCK", "RAN AT", "OUTCOME"], *map(_cells, shown)])
        if len(shown) < len(runs):
            yield f"  and {len(runs) - len(shown)} more (--all)"


def _cells(trial: Row) -> list[str]:
    ran_at = time.strftime("%m-%d %H:%M:%S", time.localtime(trial["ran_at"]))
    return [trial["trial_id"] or "-", trial["node"], trial["block"] or "-", ran_at, trial["outcome"]]


def _table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Columns that are as wide as their longest cell; names of nodes and blocks are cut where a line is too long."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    while sum(widths) + 2 * len(widths) > COLUMNS and max(widths[1:3]) > 5:
        widths[1 + (widths[2] >= widths[1])] -= 1
    for row in rows:
        yield "  " + "  ".join(cell[:width].ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _entry(name: str, text: str) -> list[str]:
    return textwrap.wrap(
        text,
        COLUMNS,
        initial_indent=f"  {name:{INDENT - 2}}",
        subsequent_indent=" " * INDENT,
        break_on_hyphens=False,
    )
