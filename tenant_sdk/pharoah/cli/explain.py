"""`pharoah explain -- CMD`: what Pharoah sees in a job, and the exact bytes that would leave this machine."""

from __future__ import annotations

import argparse
import json
import textwrap
from collections import Counter
from pathlib import Path
from typing import Any

from pharoah._settings import Settings
from pharoah.cli import _common
from pharoah.cli._output import show
from pharoah.cost.findings import operations, size
from pharoah.cost.memory import peak
from pharoah.cost.step import StepCost
from pharoah.dryrun import DryRun
from pharoah.skeleton_picture import TitledSkeleton, check_that_it_can_be_drawn, draw
from pharoah_archetypes import (
    HARDWARE_RUNGS,
    RUNGS,
    Fingerprint,
    describe_sent,
    differences,
    hardware_tokens,
    nearest,
    parse,
    pattern_of,
    rung_tokens,
)
from pharoah_protocol.tables.query import BATCH_ITEMS, QUESTION_ITEMS
from pharoah_protocol.vocabulary import Privacy


def add_parser(commands: Any) -> None:
    """Add the sub-command to the command line."""
    parser = commands.add_parser(
        "explain", help="what Pharoah sees in a job, and what would leave", description=__doc__
    )
    parser.add_argument(
        "--draw", metavar="FILE", type=Path, help="draw it beside its nearest archetypes (.svg or .png)"
    )
    parser.add_argument("--code", action="store_true", help="also record which code of which packages ran (slower)")
    parser.add_argument(
        "--payload",
        action="store_true",
        help="print every message of a run, to the byte, with its headers, and where each field comes from",
    )
    parser.add_argument("-o", "--output", choices=["table", "json"], default="table")
    _common.add_dry_run_options(parser)
    _common.add_command(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the sub-command; gives the exit code."""
    settings = _common.settings_of(arguments)
    if arguments.draw:
        check_that_it_can_be_drawn()
    dry = _common.dry_run_of(arguments, settings, record_code=arguments.code)
    show_job(dry, settings, arguments.payload, arguments.output)
    if arguments.draw:
        skeleton = parse(dry.fingerprint.grammar)
        others = [
            TitledSkeleton(title=f"{entry.id}: {entry.title} ({score:.2f})", skeleton=entry.skeleton)
            for entry, score in nearest(skeleton, 2)
        ]
        draw(arguments.draw, skeleton, " ".join(_common.job_command(arguments))[:90], others)
    return 0


def show_job(dry: DryRun, settings: Settings, payload: bool, output: str) -> None:
    """Print what there is to know about a job; as JSON its fingerprint in one line, and then one for each message.
    Nothing is sent."""
    fingerprint = dry.fingerprint
    if output == "json":
        show(fingerprint.to_json())
        if payload:
            _show_payload(fingerprint, settings)
        return
    _show_structure(fingerprint)
    _show_cost(dry.cost)
    for sentence in dry.assumptions:
        show(_wrap(f"assumed     {sentence}", 12, 0))
    show("\nTokens (these stay on this machine):")
    for rung in RUNGS:
        show(_wrap(f"{rung:11} {'  '.join(rung_tokens(fingerprint, rung)) or '-'}", 14))
    for level in HARDWARE_RUNGS:
        show(_wrap(f"{level:11} {'  '.join(hardware_tokens(fingerprint, level)) or '-'}", 14))
    for package, digest in fingerprint.code.items():
        show(f"  code        {package} {digest}")
    what = "keyed hashes" if settings.privacy == Privacy.HASHED else "blinded elements"
    show(f"\nWhat leaves: {BATCH_ITEMS} {what}, as for every job.")
    show(_wrap(f"{QUESTION_ITEMS} of them are for your job, and random ones where it has nothing to ask; "
                  f"{BATCH_ITEMS - QUESTION_ITEMS} are always random.", 2))  # fmt: skip
    if payload:
        _show_payload(fingerprint, settings)


def _show_structure(fingerprint: Fingerprint) -> None:
    skeleton = parse(fingerprint.grammar)
    show(f"archetype   {fingerprint.archetype}")
    for line in fingerprint.grammar.splitlines():
        show(_wrap(line, 7))
    for entry, likeness in nearest(skeleton, 3):
        if likeness == 1.0:
            show(f"is          {entry.id} ({entry.title})")
            break
        show(f"near        {likeness:.2f}  {entry.id} ({entry.title})")
        for line in differences(entry.skeleton.alone, skeleton.alone)[:4]:
            show(_wrap(line, 20, 16))
    if letters := describe_sent(skeleton):
        pattern = pattern_of(skeleton)
        show(_wrap(f"sends       {letters}" + (f": {pattern.id} ({pattern.title})" if pattern else ""), 12, 0))


def _show_cost(cost: StepCost) -> None:
    """What a step of one rank costs."""
    most = size(peak(cost.memory).bytes)
    show(f"costs       {operations(cost.flops)}, {size(cost.moved)} moved, {most} of tensors at the peak")
    groups: Counter[tuple[str, int]] = Counter()
    for row in cost.transfers:
        groups[row.operator_class, row.ranks] += row.times * row.moved
    for (letter, ranks), moved in groups.items():
        show(f"            {letter} of {size(moved)} in groups of {ranks:,}")


def _wrap(line: str, indent: int, first: int = 2) -> str:
    return textwrap.fill(line, 79, initial_indent=" " * first, subsequent_indent=" " * indent, break_long_words=False)


def _show_payload(fingerprint: Fingerprint, settings: Settings) -> None:
    """Every message of a run as it would leave now, as JSON lines; blinding is random, so the next look differs."""
    import asyncio

    from pharoah._errors import UnknownReason
    from pharoah.sidecar.agent_client import ask_node
    from pharoah.sidecar.payload import payload
    from pharoah.sidecar.request_headers import request_headers, user_agent

    try:
        ticket = asyncio.run(ask_node(settings.node_socket, settings.timeout_seconds, settings.service_users)).ticket
    except UnknownReason:
        ticket = None  # no agent stands here; its field says so
    agent = asyncio.run(user_agent())
    for outgoing in payload(fingerprint, settings, ticket):
        line = {
            "call": outgoing.call,
            "headers": request_headers(outgoing.call, settings, agent),
            "bytes": outgoing.content.hex(),
            "fields": outgoing.origins,
        }
        show(json.dumps(line))
