"""`pharoah reveal RUN`: send the provider the fingerprint of a run that has ended, so that it can be examined."""

from __future__ import annotations

import argparse
import asyncio
from typing import Any

from pharoah._errors import SettingsError, UnknownReason
from pharoah._settings import Settings
from pharoah.cli._output import show
from pharoah.comparison.history import NOT_ENDED, History
from pharoah.comparison.record import RecordError
from pharoah_archetypes import Fingerprint
from pharoah_system.bounded_reading import parse_json
from pharoah_system.trusted_paths import find_folder, own_content


def add_parser(commands: Any) -> None:
    """Add the sub-command to the command line."""
    parser = commands.add_parser(
        "reveal", help="send the provider the fingerprint of an ended run", description=__doc__
    )
    parser.add_argument("job", metavar="RUN", help="the beginning of its id (`pharoah status --ended`)")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.add_argument("--endpoint", metavar="ADDRESS", help="the provider (PHAROAH_ENDPOINT)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the sub-command; gives the exit code."""
    settings = Settings.load(endpoint=arguments.endpoint)
    if settings.no_provider:
        raise SettingsError(settings.no_provider)
    run_id, fingerprint = _read_kept(arguments.job, settings)
    show("This would leave your machine, readable for the provider:\n")
    show(f"{fingerprint.grammar}\n")
    for name in ("features", "sizes", "versions"):
        show(f"{name:9} {' '.join(f'{key}={value}' for key, value in getattr(fingerprint, name).items())}")
    show(f"and the digests of its structure: {fingerprint.archetype}, {fingerprint.compute}")
    if not arguments.yes and not _ask_agreement(f"\nReveal run {run_id[:8]}? [y/N] "):
        show("nothing was sent")
        return 1
    asyncio.run(_send(settings, bytes.fromhex(run_id), fingerprint))
    show(f"run {run_id[:8]} was revealed")
    return 0


def _ask_agreement(question: str) -> bool:
    try:
        return input(question).strip().lower() in ("y", "yes")
    except EOFError:
        return False


def _read_kept(prefix: str, settings: Settings) -> tuple[str, Fingerprint]:
    """The run's id, and what it was asked about, without what names this machine."""
    from pharoah.sidecar.evidence import exchange_folder

    try:
        run = History(settings).find(prefix)
    except RecordError as error:
        raise UnknownReason(str(error)) from None
    run_id, folder = run.id, exchange_folder(settings)
    try:
        file = find_folder(folder / "answers") / f"{run_id}.json" if folder else None
        kept = parse_json(own_content(file), file) if file else {}
        found = Fingerprint.from_json(kept["fingerprint"])
    except (OSError, ValueError, KeyError, TypeError):
        why = "what it was asked about is not kept on this machine"
        if run.state == NOT_ENDED:
            why = "it goes on; only what has ended can be revealed"
        raise UnknownReason(f"run {run_id[:8]}: {why}") from None
    plain = {
        name: getattr(found, name) for name in ("archetype", "compute", "grammar", "features", "sizes", "versions")
    }
    return run_id, Fingerprint(**plain)


async def _send(settings: Settings, run_id: bytes, fingerprint: Fingerprint) -> None:
    from pharoah.sidecar.run_reporter import reveal

    await reveal(settings, run_id, fingerprint.to_json())
