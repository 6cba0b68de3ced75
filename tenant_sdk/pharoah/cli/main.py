"""`pharoah`: the tenant's command line. One module per sub-command; this one puts them together."""

from __future__ import annotations

import argparse
import os
import sys

from pharoah._errors import PharoahError
from pharoah.cli import audit, check, compare, doctor, explain, findings, record, reveal, run, status

EXIT_CODES = """\
exit codes
  0   compatible, or only warned
      after a launch: the job's own exit code, or the signal that ended it
  1   internal error
  2   usage error
  10  incompatible and --gate block
  11  unknown and --strict
  12  no provider reached and --require-online
"""


def main(argv: list[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="pharoah",
        description="Keeps your AI job alive: checks it before launch, watches the machine\nunder it while it runs.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for module in (run, check, explain, record, compare, status, findings, audit, reveal, doctor):
        module.add_parser(commands)
    arguments = parser.parse_args(argv)
    try:
        return int(arguments.run(arguments))
    except PharoahError as error:
        print(f"pharoah: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the interpreter flushes once more
        return 141


def entry() -> None:
    """Run the command line and exit with its code."""
    sys.exit(main())
