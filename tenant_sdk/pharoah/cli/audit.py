"""`pharoah audit`: hold the provider to what it has signed; `pharoah audit FILE`: what such a file proves."""

from __future__ import annotations

import argparse
import asyncio
import json
from pathlib import Path
from typing import Any

from pharoah._errors import SettingsError, UnknownReason
from pharoah._settings import Settings
from pharoah.cli._output import render_check, show
from pharoah_system.bounded_reading import UnreadableInput, read_json_file


def add_parser(commands: Any) -> None:
    """Add the sub-command to the command line."""
    parser = commands.add_parser("audit", help="hold the provider to what it has signed", description=__doc__)
    parser.add_argument("file", nargs="?", type=Path, help="evidence that was kept when an answer was rejected")
    parser.add_argument("--endpoint", metavar="ADDRESS", help="the provider (PHAROAH_ENDPOINT)")
    parser.add_argument("-o", "--output", choices=["table", "json"], default="table")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the sub-command; gives the exit code."""
    settings = Settings.load(endpoint=arguments.endpoint)
    if arguments.file:
        return _prove(arguments.file, settings, arguments.output)
    from pharoah.sidecar.provider_audit import audit

    if settings.no_provider:
        raise SettingsError(settings.no_provider)
    lines = asyncio.run(audit(settings))
    if arguments.output == "json":
        show(json.dumps([line.__dict__ for line in lines], indent=1))
    else:
        for line in lines:
            show(render_check(line.result, line.check, line.detail))
    return int(any(line.result == "FAIL" for line in lines))


def _prove(file: Path, settings: Settings, output: str) -> int:
    from pharoah_protocol.tables.epoch_head import HeadError, read_public_key
    from pharoah_protocol.tables.misbehaviour import InvalidEvidenceError, prove

    try:
        public = read_public_key(Path(settings.provider_key_file))
    except HeadError as error:
        raise SettingsError(str(error)) from None
    try:
        proven = prove(read_json_file(file), public.public_bytes_raw())
        result, detail = "proven", f"the provider {proven.removeprefix('it ')}"
    except InvalidEvidenceError as error:
        result, detail = "not proven", str(error)
    except OSError as error:
        raise UnknownReason(f"{file}: {error.strerror}") from None
    except UnreadableInput as error:
        raise UnknownReason(f"{error}; is it evidence of this release?") from None
    show(json.dumps({"result": result, "detail": detail}) if output == "json" else f"{result}: {detail}")
    return int(result != "proven")
