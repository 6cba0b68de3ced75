"""`pharoah explain -- CMD`: what Pharoah sees in a job, and the exact bytes that would leave this machine."""

from __future__ import annotations

import argparse
import json
import secrets
import shutil
from collections.abc import Sequence
from typing import Any

from pharoah._dryrun import fingerprint_command
from pharoah._settings import Settings
from pharoah.cli import _common
from pharoah_archetypes import RUNGS, Fingerprint, canonical_input, nearest, rung_tokens


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "explain", help="what Pharoah sees in a job, and what would leave", description=__doc__
    )
    parser.add_argument("--payload", action="store_true", help="blind the inputs now and print what would be sent")
    parser.add_argument("-o", "--output", choices=["table", "json"], default="table")
    parser.add_argument("--dry-run-timeout-seconds", type=float, metavar="S", help="default: 30")
    _common.add_command(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    command, settings = _common.job_command(arguments), _common.settings_of(arguments)
    return show(command, settings, arguments.payload, arguments.output)


def show(command: Sequence[str], settings: Settings, payload: bool, output: str) -> int:
    """Fingerprint a command and print what there is to know about it. Nothing is sent."""
    program = shutil.which(command[0]) or command[0]
    fingerprint = fingerprint_command([program, *command[1:]], settings.dry_run_timeout_seconds)
    if output == "json":
        print(fingerprint.to_json())
        return 0
    archetype, similarity = nearest(fingerprint.grammar)
    print(f"archetype   {fingerprint.archetype}")
    print(f"nearest     {archetype.id} ({archetype.title}), similarity {similarity:.2f}")
    for line in fingerprint.grammar.splitlines():
        print(f"  {line}")
    print("\nTokens (these stay on this machine):")
    for rung in RUNGS:
        print(f"  {rung:6} {'  '.join(rung_tokens(fingerprint, rung))}")
    print("\nWhat leaves: 2 x 64 blinded elements of 32 bytes; 3 of each 64 are yours, 61 are random.")
    if payload:
        _show_payload(fingerprint)
    return 0


def _show_payload(fingerprint: Fingerprint) -> None:
    """The elements of one batch as they would be sent now; blinding is random, so the next look differs."""
    from pharoah.exchange import voprf

    inputs = {rung: canonical_input("arch", rung, rung_tokens(fingerprint, rung)) for rung in RUNGS}
    for position in range(64):
        origin = RUNGS[position] if position < len(RUNGS) else "random"
        value = inputs.get(origin) or secrets.token_bytes(32)
        print(json.dumps({"blinded": voprf.blind(value)[1].hex(), "from": origin}))
