"""`pharoah-provider campaign plan|run|status|resume|cancel`: campaigns on the connected nodes.

A campaign belongs to the provider: Ctrl-C stops only the display, and a provider that is restarted goes on.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from pharoah_protocol.v1 import (
    CancelCampaignRequest,
    ListRequest,
    PlanCampaignRequest,
    RunCampaignRequest,
    RunCampaignResponse,
)
from pharoah_provider import channel
from pharoah_provider.cli._calls import CallError, call, stream
from pharoah_serving.errors import ProviderError

LONGEST_CELL_NAME = 30


def add_parser(commands: Any) -> None:
    """Add this command."""
    parser = commands.add_parser("campaign", help="plan and run campaigns of cells", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")

    def verb(name: str, what: str, work: Any) -> argparse.ArgumentParser:
        added: argparse.ArgumentParser = verbs.add_parser(name, help=what, description=f"{what.capitalize()}.")
        channel.add_options(added)
        added.set_defaults(run=work)
        return added

    for name, what, work in (
        ("plan", "store the plan of a campaign file, and run nothing", _plan),
        ("run", "plan a campaign file and run it", _run),
    ):
        added = verb(name, what, work)
        added.add_argument("file", type=Path)
        added.add_argument("--seed", type=int, help="of the order of blocks and cells (default: drawn)")
        added.add_argument("--untried", action="store_true",
                           help="only in contexts that no campaign has tried, and the nearest ones")  # fmt: skip
    verb("status", "print how much of a campaign is done, or of all", _status).add_argument("id", nargs="?")
    verb("resume", "run what is left of a campaign, or follow it while it runs", _resume).add_argument("id")
    verb("cancel", "end a campaign; its results stay", _cancel).add_argument("id")


def _plan(arguments: argparse.Namespace) -> int:
    request = PlanCampaignRequest(campaign=_text(arguments.file), seed=arguments.seed, untried=arguments.untried)
    with_file = _named(arguments.file)
    try:
        plan = call(arguments, "PlanCampaign", request)
    except CallError as error:
        raise with_file(error) from None
    contexts = f"{plan.contexts} context{'s' * (plan.contexts != 1)}"
    print(f"campaign {plan.campaign_id}: {plan.works} works in {plan.blocks} blocks, {contexts}, seed {plan.seed}")
    print(f"run it with `pharoah-provider campaign resume {plan.campaign_id}`")
    return 0


def _run(arguments: argparse.Namespace) -> int:
    """Returns when the last work is done. Raises ProviderError that names the file."""
    request = RunCampaignRequest(campaign=_text(arguments.file), seed=arguments.seed, untried=arguments.untried)
    try:
        _follow(stream(arguments, "RunCampaign", request))
    except CallError as error:
        raise _named(arguments.file)(error) from None
    return 0


def _resume(arguments: argparse.Namespace) -> int:
    _follow(stream(arguments, "RunCampaign", RunCampaignRequest(campaign_id=arguments.id)))
    return 0


def _cancel(arguments: argparse.Namespace) -> int:
    call(arguments, "CancelCampaign", CancelCampaignRequest(campaign_id=arguments.id))
    print(f"campaign {arguments.id} is cancelled; `pharoah-provider campaign resume {arguments.id}` goes on with it")
    return 0


def _status(arguments: argparse.Namespace) -> int:
    rows = [json.loads(row) for row in call(arguments, "List", ListRequest(listing="campaigns")).rows]
    chosen = [row for row in rows if arguments.id in (None, row["id"])]
    if arguments.id is not None and not chosen:
        raise ProviderError(f"campaign {arguments.id} is not known (see `pharoah-provider campaigns`)")
    for row in chosen:
        print(f"{row['id']}  {row['name']}: {row['state']}, {row['done']} of {row['works']} works done, ", end="")
        print(f"{row['failed']} cells failed, {row['blocks']} blocks on {row['nodes']} nodes, seed {row['seed']}")
        if row["reason"]:
            print(f"  {row['reason']}")
    return 0


def _text(file: Path) -> str:
    try:
        return file.read_text()
    except OSError as error:
        raise ProviderError(f"{file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ProviderError(f"{file}: not a text in UTF-8") from None


def _named(file: Path) -> Any:
    """The error of a call about a file, with its name."""
    return lambda error: ProviderError(f"{file}: {error.details}") if error.invalid else error


def _follow(answers: Iterator[RunCampaignResponse]) -> None:
    """Show the progress to its end. After Ctrl-C it is said that the campaign goes on."""
    campaign_id = next(answers).campaign_id
    print(f"campaign {campaign_id}", flush=True)
    try:
        _show(answers)
    except KeyboardInterrupt:
        print(f"\ncampaign {campaign_id} goes on; `pharoah-provider campaign status|cancel {campaign_id}`", flush=True)
        raise


def _show(answers: Iterator[RunCampaignResponse]) -> None:
    """A bar on a terminal, ten lines elsewhere."""
    columns = (TextColumn("campaign"), BarColumn(24), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, TextColumn("{task.description}"), disable=not sys.stdout.isatty()) as bar:
        task = bar.add_task("", total=None)
        printed = done = -1
        for answer in answers:
            if answer.done == done:  # no work has ended: a node has left
                bar.console.print(f"{answer.node} {answer.cell}: {answer.outcome}", markup=False)
            done = answer.done
            cell = answer.cell[:LONGEST_CELL_NAME]
            bar.update(task, completed=answer.done, total=answer.total, description=f"{answer.node} {cell}")
            tenth = 10 * answer.done // answer.total
            if bar.disable and tenth > printed:
                printed = tenth
                share = f"campaign {answer.done}/{answer.total}"
                print(f"{share}  {answer.node} {answer.cell}: {answer.outcome}", flush=True)
