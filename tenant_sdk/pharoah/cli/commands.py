"""`pharoah`: the tenant's command line. One module per sub-command; this one puts them together."""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from collections.abc import Sequence

from pharoah._errors import PharoahError
from pharoah._guard import DEBUG
from pharoah.cli import (
    _job_process,
    _output,
)
from pharoah_system.bounded_reading import UnreadableInput
from pharoah_system.command_table import Command, add_commands, find_command
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
LAUNCH = "run"
COMMANDS = {
    LAUNCH: Command("run", "check a job, then launch it"),
    "check": Command("check", "the verdict on a job, without launching it"),
    "explain": Command("explain", "what Pharoah sees in a job, and what would leave"),
    "record": Command("record", "what a run of a job may differ in, as a file"),
    "compare": Command("compare", "what differs between two runs"),
    "replay": Command("replay", "compute a saved step again, to find wrong results"),
    "status": Command("status", "the jobs Pharoah watches on this node"),
    "findings": Command("findings", "the codes of findings and their meaning"),
    "documented": Command("documented", "which versions and GPUs go together, as vendors document it"),
    "audit": Command("audit", "hold the provider to what it has signed"),
    "reveal": Command("reveal", "send the provider the fingerprint of an ended run"),
    "doctor": Command("doctor", "test what a check needs"),
}
INTERNAL_ERROR, USAGE_ERROR = 1, 2
BROKEN_PIPE = 141
"""What a shell shows of a program that SIGPIPE has ended."""


def main(argv: list[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    words = sys.argv[1:] if argv is None else argv
    arguments = _parser(words).parse_args(words)
    _job_process.notice_children()
    try:
        code = int(arguments.run(arguments))
        if arguments.command != LAUNCH:  # a launch writes no result, and its exit code is the job's
            _output.finish()
        return code
    except _output.OutputError as error:
        say(f"pharoah: {error}")
        return _output.OUTPUT_FAILED
    except (PharoahError, UnreadableInput) as error:
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


def _parser(words: Sequence[str] = ()) -> argparse.ArgumentParser:
    """The parser for a command line: it knows all commands, and the options of the one that is named."""
    parser = argparse.ArgumentParser(
        prog="pharoah",
        description="Keeps your AI job alive: checks it before launch, watches the machine\nunder it while it runs.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    add_commands(commands, COMMANDS, "pharoah.cli", find_command(words))
    return parser
