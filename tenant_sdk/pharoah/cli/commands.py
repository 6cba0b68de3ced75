"""`pharoah`: the tenant's command line. One module per sub-command; this one puts them together."""

from __future__ import annotations

import argparse
import os
import sys
import traceback

from pharoah._errors import PharoahError
from pharoah._guard import DEBUG
from pharoah.cli import (
    _job_process,
    _output,
    audit,
    check,
    compare,
    doctor,
    documented,
    explain,
    findings,
    record,
    replay,
    reveal,
    run,
    status,
)
from pharoah_system.standard_streams import say

EXIT_CODES = """\
exit codes
  0   compatible, or only warned
      after a launch: the job's own exit code, or the signal that ended it
  1   internal error
  2   usage error
  10  incompatible and --gate block
  11  unknown and --strict
  12  no provider reached and --require-online
  13  `pharoah replay`: results differ between repeats or nodes
  74  a result could not be written to standard output
"""
INTERNAL_ERROR, USAGE_ERROR = 1, 2
BROKEN_PIPE = 141
"""What a shell shows of a program that SIGPIPE has ended."""


def main(argv: list[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    arguments = _parser().parse_args(argv)
    _job_process.notice_children()
    try:
        code = int(arguments.run(arguments))
        if arguments.run is not run.run:  # a launch writes no result, and its exit code is the job's
            _output.finish()
        return code
    except _output.OutputError as error:
        say(f"pharoah: {error}")
        return _output.OUTPUT_FAILED
    except PharoahError as error:
        say(f"pharoah: {error}")
        return USAGE_ERROR
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the interpreter flushes once more
        return BROKEN_PIPE
    except Exception as error:  # noqa: BLE001 - a user gets a sentence; the traceback is for us
        say(f"pharoah: internal error: {type(error).__name__}: {error}")
        if os.environ.get(DEBUG):
            say(traceback.format_exc())
        return INTERNAL_ERROR


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="pharoah",
        description="Keeps your AI job alive: checks it before launch, watches the machine\nunder it while it runs.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for module in (run, check, explain, record, compare, replay, status, findings, documented, audit, reveal, doctor):
        module.add_parser(commands)
    return parser
