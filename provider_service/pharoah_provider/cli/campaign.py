"""`pharoah-provider campaign FILE`: run a campaign on the connected nodes."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from pharoah_protocol.v1 import RunCampaignRequest, RunCampaignResponse
from pharoah_provider import channel
from pharoah_provider.cli._calls import CallError, stream
from pharoah_serving.errors import ProviderError

LONGEST_CELL_NAME = 30


def add_parser(commands: Any) -> None:
    """Add this command."""
    parser = commands.add_parser("campaign", help="run a campaign file on the connected nodes", description=__doc__)
    parser.add_argument("file", type=Path)
    channel.add_options(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Returns when the last cell is done; Ctrl-C ends the campaign. Raises ProviderError that names the file."""
    try:
        text = arguments.file.read_text()
    except OSError as error:
        raise ProviderError(f"{arguments.file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ProviderError(f"{arguments.file}: not a text in UTF-8") from None
    try:
        _show(stream(arguments, "RunCampaign", RunCampaignRequest(campaign=text)))
    except CallError as error:
        if error.invalid:
            raise ProviderError(f"{arguments.file}: {error.details}") from None
        raise
    return 0


def _show(answers: Iterator[RunCampaignResponse]) -> None:
    """A bar on a terminal, ten lines elsewhere."""
    columns = (TextColumn("campaign"), BarColumn(24), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, TextColumn("{task.description}"), disable=not sys.stdout.isatty()) as bar:
        task = bar.add_task("", total=None)
        printed = done = -1
        for answer in answers:
            if answer.done == done:  # no cell has ended: a node has left
                bar.console.print(f"{answer.node} {answer.cell}: {answer.outcome}", markup=False)
            done = answer.done
            cell = answer.cell[:LONGEST_CELL_NAME]
            bar.update(task, completed=answer.done, total=answer.total, description=f"{answer.node} {cell}")
            tenth = 10 * answer.done // answer.total
            if bar.disable and tenth > printed:
                printed = tenth
                share = f"campaign {answer.done}/{answer.total}"
                print(f"{share}  {answer.node} {answer.cell}: {answer.outcome}", flush=True)
