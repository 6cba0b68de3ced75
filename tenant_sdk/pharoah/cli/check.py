"""`pharoah check -- CMD`: the verdict on a job, without launching it."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from pharoah._verdict import unknown
from pharoah.cli import _check, _common, explain
from pharoah.cli._output import show
from pharoah.cost.mitigation import Mitigation
from pharoah.cost.step import StepCost
from pharoah_protocol.vocabulary import Mode, VerdictStatus


def add_parser(commands: Any) -> None:
    """Add the sub-command to the command line."""
    parser = commands.add_parser("check", help="the verdict on a job, without launching it", description=__doc__)
    _common.add_check_options(parser)
    parser.add_argument("-o", "--output", choices=["table", "json"], default="table")
    _common.add_command(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the sub-command; gives the exit code."""
    settings = _common.settings_of(arguments)
    _common.job_command(arguments)  # a missing command is an error before anything starts

    def trial(command: Sequence[str], change: Mitigation) -> StepCost:
        return _common.dry_run_of(arguments, settings, command, change=change).cost

    if settings.mode == Mode.DRY_RUN:
        explain.show_job(_common.dry_run_of(arguments, settings), settings, payload=True, output=arguments.output)
        return 0
    if settings.mode == Mode.DISABLED:
        verdict = unknown(f"mode={settings.mode}: the provider is not asked")
    else:
        try:
            with _common.sidecar(settings) as link:
                checked = _check.check_job(link, arguments, settings)
            verdict = _check.judge_here(checked, trial, _common.job_command(arguments)).verdict
        except OSError as error:
            verdict = unknown(str(error))
    if verdict.status == VerdictStatus.PENDING:
        verdict = unknown(verdict.reason, verdict.run_id)
    show(verdict.to_json() if arguments.output == "json" else verdict.render())
    _common.write_verdict(verdict, settings)
    return _common.exit_code(verdict, arguments, settings)
