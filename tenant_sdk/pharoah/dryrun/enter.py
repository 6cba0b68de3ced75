"""The way of a child into its sandbox: the module `pharoah.dryrun.enter`, with FILE-DESCRIPTOR PROGRAM SECONDS.

Before the sandbox is closed, only what the sandbox needs is imported: a thread of a library would prevent it. Then
`pharoah.dryrun.child` starts from the files inside. It is a new program, because the program file of a process stays
open, and the first one was opened outside.
"""

from __future__ import annotations

import os
import sys

from pharoah.dryrun.late_path import start_code
from pharoah.dryrun.reports import Report, reporting
from pharoah.dryrun.sandbox import enter_sandbox
from pharoah.dryrun.sandbox_mode import Sandbox
from pharoah_system.parent_process import end_with_parent

_CHILD = "pharoah.dryrun.child"


def main() -> None:
    """Never returns."""
    results, program, seconds = sys.argv[1:]
    with reporting(Report(int(results))):
        end_with_parent()
        sandbox = enter(int(results), keeps_program=False)
        # What comes before the code are the interpreter's own options.
        options = sys.orig_argv[1 : sys.orig_argv.index("-c")]
        command = [sys.executable, *options, "-c", start_code(_CHILD), results, program, seconds, sandbox.to_json()]
        os.execv(sys.executable, command)


def enter(results: int, *, keeps_program: bool) -> Sandbox:
    """Enter a sandbox with nothing open but the file for the results. Raises UnknownReason."""
    _detach_files(results)
    sandbox = enter_sandbox(keeps_program=keeps_program)
    _detach_files(results)  # the null device was the one of the machine
    return sandbox


def _detach_files(results: int) -> None:
    """Point all other open files to /dev/null: a forked child inherits the job's output, logs and connections."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208
        if int(name) not in (results, nothing):
            try:
                os.dup2(nothing, int(name))
            except OSError:
                pass  # the descriptor that listed them


if __name__ == "__main__":
    main()
