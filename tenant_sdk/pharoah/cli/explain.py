"""`pharoah explain -- CMD`: what Pharoah sees in a job, and the exact bytes that would leave this machine."""

from __future__ import annotations

import argparse
import json
import secrets
import shutil
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pharoah._settings import Settings
from pharoah.cli import _common
from pharoah.dryrun import fingerprint_command
from pharoah.picture import draw
from pharoah_archetypes import (
    HARDWARE_RUNGS,
    RUNGS,
    Fingerprint,
    canonical_input,
    differences,
    hardware_tokens,
    nearest,
    parse,
    rung_tokens,
)


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "explain", help="what Pharoah sees in a job, and what would leave", description=__doc__
    )
    parser.add_argument(
        "--draw", metavar="FILE", type=Path, help="draw it beside its nearest archetypes (.svg or .png)"
    )
    parser.add_argument("--code", action="store_true", help="also record which code of which packages ran (slower)")
    parser.add_argument("--payload", action="store_true", help="blind the inputs now and print what would be sent")
    parser.add_argument("-o", "--output", choices=["table", "json"], default="table")
    parser.add_argument("--dry-run-timeout-seconds", type=float, metavar="S", help="default: 30")
    _common.add_command(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    command, settings = _common.job_command(arguments), _common.settings_of(arguments)
    fingerprint = show(command, settings, arguments.payload, arguments.output, record_code=arguments.code)
    if arguments.draw:
        skeleton = parse(fingerprint.grammar)
        others = [(f"{entry.id}: {entry.title} ({score:.2f})", entry.skeleton) for entry, score in nearest(skeleton, 2)]
        draw(arguments.draw, skeleton, " ".join(command)[:90], others)
    return 0


def show(
    command: Sequence[str], settings: Settings, payload: bool, output: str, *, record_code: bool = False
) -> Fingerprint:
    """Fingerprint a command and print what there is to know about it. Nothing is sent."""
    program = shutil.which(command[0]) or command[0]
    fingerprint = fingerprint_command(
        [program, *command[1:]], settings.dry_run_timeout_seconds, record_code=record_code
    )
    if output == "json":
        print(fingerprint.to_json())
        return fingerprint
    _show_structure(fingerprint)
    print("\nTokens (these stay on this machine):")
    for rung in RUNGS:
        print(_wrapped(f"{rung:6} {'  '.join(rung_tokens(fingerprint, rung))}", 9))
    for rung in HARDWARE_RUNGS:
        print(_wrapped(f"{rung:6} {'  '.join(hardware_tokens(fingerprint, rung)) or '-'}", 9))
    for package, digest in fingerprint.code.items():
        print(f"  code   {package} {digest}")
    print("\nWhat leaves: 2 x 64 blinded elements of 32 bytes; of each 64, 3 are yours.")
    if payload:
        _show_payload(fingerprint)
    return fingerprint


def _show_structure(fingerprint: Fingerprint) -> None:
    skeleton = parse(fingerprint.grammar)
    print(f"archetype   {fingerprint.archetype}")
    for line in fingerprint.grammar.splitlines():
        print(_wrapped(line, 7))
    for entry, likeness in nearest(skeleton, 3):
        if entry.skeleton == skeleton:
            print(f"is          {entry.id} ({entry.title})")
            return
        print(f"near        {likeness:.2f}  {entry.id} ({entry.title})")
        for line in differences(entry.skeleton, skeleton)[:4]:
            print(_wrapped(line, 20, 16))


def _wrapped(line: str, indent: int, first: int = 2) -> str:
    return textwrap.fill(line, 79, initial_indent=" " * first, subsequent_indent=" " * indent, break_long_words=False)


def _show_payload(fingerprint: Fingerprint) -> None:
    """The elements of one batch as they would be sent now; blinding is random, so the next look differs."""
    from pharoah.exchange import voprf

    inputs = {rung: canonical_input("arch", rung, rung_tokens(fingerprint, rung)) for rung in RUNGS}
    for position in range(64):
        origin = RUNGS[position] if position < len(RUNGS) else "random"
        value = inputs.get(origin) or secrets.token_bytes(32)
        print(json.dumps({"blinded": voprf.blind(value)[1].hex(), "from": origin}))
