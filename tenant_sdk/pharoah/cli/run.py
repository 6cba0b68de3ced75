"""`pharoah run -- CMD`: check a job, then launch it; it ends as the job ends, by exit code or by signal."""

from __future__ import annotations

import argparse
from typing import Any, NamedTuple

from pharoah._settings import VARIABLES, Settings
from pharoah.cli import _common, _job_process
from pharoah.cli._preparation import Prepared, prepare, skip_check
from pharoah_protocol.job_program import say_failed_start
from pharoah_protocol.rank_messages import End
from pharoah_protocol.vocabulary import EndState, Mode
from pharoah_system.had_time import process_age_seconds
from pharoah_system.standard_streams import say


class _Ended(NamedTuple):
    """How the process of the job has ended."""

    status: int
    """Its exit code; -n when signal n ended it."""
    asked_at: float | None = None
    """Unix seconds at which it was first asked to end; None when it was not."""


def add_parser(commands: Any) -> None:
    """Add the sub-command to the command line."""
    parser = commands.add_parser("run", help="check a job, then launch it", description=__doc__)
    _common.add_check_options(parser)
    parser.add_argument(
        "--allow-beside-job",
        action="store_true",
        default=None,
        help="let the provider run micro-benchmarks on this node while the job runs",
    )
    parser.add_argument(
        "--step-file", metavar="FILE", help="save one step with its weights and data, for `pharoah replay`"
    )
    _common.add_command(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the sub-command; gives the exit code. Raises SettingsError for what the user has to write otherwise on the
    command line. Variables that cannot be read keep no job from starting."""
    unreadable: list[str] = []
    command, settings = _common.job_command(arguments), _common.settings_of(arguments, unreadable.append)
    if settings.mode is not Mode.DISABLED:
        for line in unreadable:
            say(f"pharoah: {line}")
    checks = settings.mode in (Mode.ONLINE, Mode.OFFLINE)
    prepared = (
        prepare(command, arguments, settings, process_age_seconds()) if checks else skip_check(arguments, settings)
    )
    if prepared.words:
        say(prepared.words)
    if prepared.exit_code:
        prepared.end(End(EndState.CANCELLED, last=True, stated=True))
        return prepared.exit_code
    status, asked_at = _launch(command, prepared, settings)
    prepared.end(End(EndState.FAILED if status else EndState.OK, last=True, status=status, asked_at=asked_at))
    return _job_process.die_of(-status) if status < 0 else status


def _launch(command: list[str], prepared: Prepared, settings: Settings) -> _Ended:
    """Run the job and pass signals on to it."""
    with _job_process.SignalForwarding() as signals:
        try:
            saved = {VARIABLES["step_file"]: settings.step_file} if settings.step_file else {}
            variables = {**prepared.variables, **saved}
            child = _job_process.start(command, variables, prepared.restrictions)
        except (OSError, ValueError) as error:
            return _Ended(say_failed_start(command[0], error))
        signals.to(child)
        _job_process.wait_small(child, signals, prepared.command_at_end())
        return _Ended(_job_process.wait_for(child), signals.asked_at)
