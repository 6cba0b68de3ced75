"""`pharoah-provider campaign plan|run|confirm|status|resume|cancel`: campaigns on the connected nodes or elsewhere.

A campaign belongs to the provider: Ctrl-C stops only the display, and a provider that is restarted goes on.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pharoah_protocol.v1 import (
    CampaignExecutor,
    CancelCampaignRequest,
    PlanCampaignRequest,
    PlanCampaignResponse,
    PlanConfirmationRequest,
    RunCampaignRequest,
    RunCampaignResponse,
)
from pharoah_provider import channel
from pharoah_provider.cli import _locks
from pharoah_provider.cli._calls import CallError, call, rows_of, stream
from pharoah_provider.cli._display import progress
from pharoah_provider.cli._values import count
from pharoah_serving.errors import ProviderError
from pharoah_system.bounded_reading import UnreadableInput, read_text
from pharoah_system.standard_streams import say, show

MAX_CELL_NAME_LENGTH = 30
AWAY_SECONDS = 60.0
"""How long a provider may be away before following its campaign ends: a restart takes seconds."""


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
        _add_drawn(added)
        _locks.add_options(added)
        added.add_argument(
            "--untried", action="store_true", help="only in contexts that no campaign has tried, and the nearest ones"
        )
        group = added.add_argument_group("executor", "These count before what the file states.")
        group.add_argument("--executor", metavar="NAME", help="agents, local, ray, or one of a plug-in")
        group.add_argument("--address", help="of the cluster")
        group.add_argument("--slots", type=count, help="how many cells run at a time")
        group.add_argument("--profile", help="node profile of each process, as JSON or a file of it")
    lock = verbs.add_parser(
        "lock",
        help="print the locks that a campaign file lacks, to append to it",
        description="Print the locks of environments that a campaign file lacks, to append to it: nodes then install "
        "the same wheels each time. Without them, plan and run make locks of their own.",
    )
    lock.add_argument("file", type=Path)
    _locks.add_options(lock)
    lock.set_defaults(run=_lock)
    confirm = verb("confirm", "confirm or refute suspects by pairs of cells in random order", _confirm)
    which = confirm.add_mutually_exclusive_group(required=True)
    which.add_argument("--suspect", metavar="ID", action="append", help="one of `suspects`; may be repeated")
    which.add_argument("--all", action="store_true", help="all suspects of the newest release")
    _add_drawn(confirm)
    confirm.add_argument(
        "--most-pairs",
        type=count,
        metavar="N",
        help="of each suspect (default: as many as decide an effect that matters; the price is printed)",
    )
    confirm.add_argument("--plan-only", action="store_true", help="store the plan, print its price, and run nothing")
    verb("status", "print how much of a campaign is done, or of all", _status).add_argument("id", nargs="?")
    resume = verb("resume", "run what is left of a campaign, or follow it while it runs", _resume)
    resume.add_argument("id")
    resume.add_argument("--budget-minutes", type=float, metavar="N", help="its new budget, in all")
    verb("cancel", "end a campaign; its results stay", _cancel).add_argument("id")


def _add_drawn(parser: argparse.ArgumentParser) -> None:
    """The options of every new campaign."""
    parser.add_argument("--seed", type=count, help="of the order of blocks and cells (default: drawn)")
    parser.add_argument(
        "--budget-minutes",
        type=float,
        metavar="N",
        help="how long cells may run; the blocks that say most come first when it is short",
    )


def _plan(arguments: argparse.Namespace) -> int:
    request = PlanCampaignRequest(
        campaign=_add_locks(arguments),
        seed=arguments.seed,
        executor=_executor(arguments),
        budget_minutes=arguments.budget_minutes,
        untried=arguments.untried,
    )
    with_file = _name(arguments.file)
    try:
        plan = call(arguments, "PlanCampaign", request)
    except CallError as error:
        raise with_file(error) from None
    _print_plan(plan)
    show(f"run it with `pharoah-provider campaign resume {plan.campaign_id}`")
    return 0


def _lock(arguments: argparse.Namespace) -> int:
    """Raises ProviderError with pip's reason."""
    tables = _locks.missing_locks(_text(arguments.file), arguments)
    if tables:
        show(tables, end="")
    else:
        say(f"pharoah-provider: {arguments.file}: no environment in it lacks a lock that could be made here")
    return 0


def _add_locks(arguments: argparse.Namespace) -> str:
    """The campaign file with the locks that it lacks. Raises ProviderError."""
    text = _text(arguments.file)
    locks = _locks.missing_locks(text, arguments)
    return f"{text}\n{locks}" if locks else text


def _print_plan(plan: PlanCampaignResponse) -> None:
    contexts = f"{plan.contexts or 'no'} context{'s' * (plan.contexts != 1)}"
    show(f"campaign {plan.campaign_id}: {plan.works} works in {plan.blocks} blocks, {contexts}, seed {plan.seed}")


def _run(arguments: argparse.Namespace) -> int:
    """Returns when the last work is done. Raises ProviderError that names the file."""
    request = RunCampaignRequest(
        campaign=_add_locks(arguments),
        seed=arguments.seed,
        executor=_executor(arguments),
        budget_minutes=arguments.budget_minutes,
        untried=arguments.untried,
    )
    try:
        return _follow(arguments, request)
    except CallError as error:
        raise _name(arguments.file)(error) from None


def _confirm(arguments: argparse.Namespace) -> int:
    request = PlanConfirmationRequest(
        suspects=arguments.suspect or [],
        seed=arguments.seed,
        budget_minutes=arguments.budget_minutes,
        most_pairs=arguments.most_pairs,
    )
    plan = call(arguments, "PlanConfirmation", request)
    for notice in plan.notices:
        show(f"not in the plan: {notice}")
    for price in plan.prices:
        show(price)
    _print_plan(plan)
    if arguments.plan_only:
        show(f"run it with `pharoah-provider campaign resume {plan.campaign_id}`")
        return 0
    return _follow(arguments, RunCampaignRequest(campaign_id=plan.campaign_id))


def _resume(arguments: argparse.Namespace) -> int:
    request = RunCampaignRequest(campaign_id=arguments.id, budget_minutes=arguments.budget_minutes)
    return _follow(arguments, request)


def _executor(arguments: argparse.Namespace) -> CampaignExecutor:
    profile: str = arguments.profile or ""
    if profile and not profile.lstrip().startswith("{"):
        profile = _text(Path(profile))
    if arguments.slots is not None and arguments.slots < 1:
        raise ProviderError(f"--slots {arguments.slots}: expected a number above 0")
    return CampaignExecutor(name=arguments.executor, slots=arguments.slots, address=arguments.address, profile=profile)


def _cancel(arguments: argparse.Namespace) -> int:
    call(arguments, "CancelCampaign", CancelCampaignRequest(campaign_id=arguments.id))
    show(f"campaign {arguments.id} is cancelled; `pharoah-provider campaign resume {arguments.id}` goes on with it")
    return 0


def _status(arguments: argparse.Namespace) -> int:
    rows = rows_of(arguments, "campaigns")
    chosen = [row for row in rows if arguments.id in (None, row["id"])]
    if arguments.id is not None and not chosen:
        raise ProviderError(f"campaign {arguments.id} is not known (see `pharoah-provider campaigns`)")
    confirmations = rows_of(arguments, "confirmations")
    not_run: dict[str, dict[str, list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    if any(row["not_run"] for row in chosen):
        from pharoah_provider.campaigns.works import WorkState  # here: most calls need no works

        for work in rows_of(arguments, "works-not-run"):
            if work["state"] == WorkState.NOT_RUN:
                not_run[work["campaign"]][work["cause"]].append(work)
    if not chosen:
        show("there are no campaigns; `pharoah-provider campaign run FILE` runs one")
    for row in chosen:
        _print_status(row, [one for one in confirmations if one["campaign"] == row["id"]], not_run[row["id"]])
    if any(not_run.values()):
        show("`pharoah-provider works-not-run` lists each of them with its reason")
    return 0


def _print_status(
    row: dict[str, Any], confirmations: list[dict[str, Any]], not_run: dict[str, list[dict[str, Any]]]
) -> None:
    """`not_run`: the works that were set aside, by their cause."""
    aside = f"{row['not_run']} not run, " if row["not_run"] else ""
    show(f"{row['id']}  {row['name']}: {row['state']}, {row['done']} of {row['works']} works done, {aside}", end="")
    show(f"{row['failed']} cells failed, {row['blocks']} blocks on {row['nodes']} nodes, seed {row['seed']}", end="")
    show(f", executor {row['executor']}", end="")
    show(f", {row['used_minutes']:.1f} of {row['budget_minutes']:g} minutes" if row["budget_minutes"] else "")
    if row["reason"]:
        show(f"  {row['reason']}")
    for cause, works in not_run.items():
        show(f"  not run: {len(works)}, {cause}; {works[0]['remedy']}")
    for one in confirmations:
        show(f"  suspect {one['suspect']} ({one['title']} on {one['node']}): {one['decision']}, evidence ", end="")
        show(f"{one['e_value']:.3g} from {one['pairs']} of at most {one['most_pairs']} pairs, ", end="")
        show(f"{one['against']} against it and {one['for_it']} for it")
        if one["fails_on"]:
            show(f"    it fails on {one['fails_on']} alone")
        if one["missing"]:
            show(f"    missing: {one['missing']}")


def _text(file: Path) -> str:
    try:
        return read_text(file)
    except OSError as error:
        raise ProviderError(f"{file}: {error.strerror}") from None
    except UnreadableInput as error:
        raise ProviderError(str(error)) from None


def _name(file: Path) -> Any:
    """The error of a call about a file, with its name."""
    return lambda error: ProviderError(f"{file}: {error.details}") if error.invalid else error


def _follow(arguments: argparse.Namespace, request: RunCampaignRequest) -> int:
    """Show the progress of a campaign to its end, then its status. After Ctrl-C it is said that it goes on."""
    answers = stream(arguments, "RunCampaign", request)
    campaign_id = next(answers).campaign_id
    show(f"campaign {campaign_id}", flush=True)
    try:
        while True:
            try:
                _show(answers)
                break
            except CallError as error:
                if not error.unavailable:
                    raise
            if not _still_runs(arguments, campaign_id):
                break
            answers = stream(arguments, "RunCampaign", RunCampaignRequest(campaign_id=campaign_id))
    except KeyboardInterrupt:
        show(f"\ncampaign {campaign_id} goes on; `pharoah-provider campaign status|cancel {campaign_id}`", flush=True)
        raise
    finally:
        answers.close()  # a stream that is left open keeps this process from ending
    arguments.id = campaign_id
    return _status(arguments)


def _still_runs(arguments: argparse.Namespace, campaign_id: str) -> bool:
    """Whether a campaign whose connection has ended goes on: the provider ends old connections, and may be restarted.

    Raises ProviderError when the provider does not answer for AWAY_SECONDS.
    """
    from pharoah_provider.campaigns.works import CampaignState  # here: it brings what campaigns are made of

    deadline = time.monotonic() + AWAY_SECONDS
    while True:
        try:
            (row,) = [row for row in rows_of(arguments, "campaigns") if row["id"] == campaign_id]
            return bool(row["state"] == CampaignState.RUNNING)
        except CallError as error:
            if not error.unavailable:
                raise
            if time.monotonic() > deadline:
                follow = f"`pharoah-provider campaign resume {campaign_id}`"
                raise ProviderError(
                    f"the provider is away: {error.details}; it goes on with the campaign when it is back. Follow it "
                    f"with {follow}"
                ) from None
        time.sleep(1.0)


def _show(answers: Iterator[RunCampaignResponse]) -> None:
    """A bar on a terminal, ten lines elsewhere."""
    with progress("campaign") as bar:
        printed = done = -1
        for answer in answers:
            if not answer.total:  # the first answer of a connection names the campaign only
                continue
            if answer.done == done:  # no work has ended: a node has left
                bar.say(f"{answer.node} {answer.cell}: {answer.outcome}")
            done = answer.done
            cell = answer.cell[:MAX_CELL_NAME_LENGTH]
            bar.move(answer.done, answer.total, f"{answer.node} {cell}")
            tenth = 10 * answer.done // answer.total
            if not bar.is_drawn and tenth > printed:
                printed = tenth
                share = f"campaign {answer.done}/{answer.total}"
                show(f"{share}  {answer.node} {answer.cell}: {answer.outcome}", flush=True)
