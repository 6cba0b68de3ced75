"""The entry of `pharoah`: makes the process safe from its surroundings, and starts the job when nothing else works.

This module is loaded before anything that may fail, so at its top it imports nothing but what cannot.
"""

import os
import sys

from pharoah_system.own_python import isolate_imports

_REFUSALS = ("--strict", "--require-online")
"""With one of these the user wants no job that was not checked."""
_VALUED = (
    "--gate", "--endpoint", "--node-socket", "--verdict-file", "--dry-run-timeout-seconds", "--nnodes",
    "--nproc-per-node", "--gpus", "--gpu-driver", "--step-file",
)  # fmt: skip
"""Options of `pharoah run` with a value. They stand here because their parser may be what cannot be loaded."""
_INTERRUPTED = -2
"""Stands for the end by Ctrl-C: the number of SIGINT."""


def main(argv: list[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    from pharoah.cli.commands import main as run_command

    return run_command(argv)


def entry() -> None:
    """Run the command line and end with its code.

    `os._exit`, because an interpreter that ends by itself writes out its streams once more, and changes the exit code
    when that fails: the code of a job that has ended must stay.
    """
    code = _exit_code()
    if code == _INTERRUPTED:
        _end_by_interrupt()
    os._exit(code)


def _end_by_interrupt() -> None:
    """End as programs that do not handle Ctrl-C: a shell ends its loop only where the signal has ended a program."""
    import signal  # by now from the standard library, whatever the current folder holds

    try:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    finally:
        os._exit(128 + signal.SIGINT)


def _exit_code() -> int:
    try:
        isolate_imports()
        from pharoah_system.standard_streams import hold_standard_descriptors

        hold_standard_descriptors()
        return main()
    except KeyboardInterrupt:
        return _INTERRUPTED
    except SystemExit as exit_:
        return exit_.code if isinstance(exit_.code, int) else int(exit_.code is not None)
    except Exception as error:  # noqa: BLE001 - a module that hides one of ours may raise anything
        return _without_pharoah(error)
    finally:
        _flush()


def _without_pharoah(error: Exception) -> int:
    """Our own commands cannot be loaded: an installation is broken, or a module of ours is hidden by another one.

    A job that was to be launched is launched. Returns the exit code for everything else.
    """
    from pharoah_protocol.job_program import become, read_given_environment
    from pharoah_system.standard_streams import say

    options, job = _split(sys.argv[1:])
    if job and not any(refusal.startswith(option) for option in options for refusal in _REFUSALS):
        say(f"pharoah: it cannot be loaded ({error}); the job starts without it")
        become(job, read_given_environment())
    say(f"pharoah: it cannot be loaded: {type(error).__name__}: {error}")
    return 1


def _split(words: list[str]) -> tuple[list[str], list[str]]:
    """The options of `pharoah run` and the command of the job, which need not come after `--`; both are empty for
    other commands. As argparse does it, the beginning of a name stands for the whole name."""
    options: list[str] = []
    rest = words[1:] if words[:1] == ["run"] else []
    while rest and rest[0].startswith("-") and rest[0] != "--":
        options.append(rest.pop(0))
        if any(name.startswith(options[-1]) for name in _VALUED):
            rest = rest[1:]
    return options, rest[1:] if rest[:1] == ["--"] else rest


def _flush() -> None:
    """Write out what is left. When that fails, there is nobody left to report it to."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (AttributeError, OSError, ValueError):
            pass
