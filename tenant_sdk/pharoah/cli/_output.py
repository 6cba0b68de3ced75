"""Results that a user has asked for, on standard output. What we only say goes to standard error, through `say`."""

from __future__ import annotations

import sys

from pharoah._errors import PharoahError
from pharoah_system import standard_streams

OUTPUT_FAILED = 74
"""Exit code: EX_IOERR of sysexits.h."""


class OutputError(PharoahError):
    """A result that could not be written to standard output."""


def show(*parts: object, end: str = "\n") -> None:
    """Write parts of a result, separated by spaces. Raises OutputError; BrokenPipeError when nobody reads any more."""
    if sys.stdout is None:  # it was closed when this process started
        raise OutputError("the result cannot be written: standard output is closed")
    try:
        standard_streams.show(*parts, end=end)
    except BrokenPipeError:
        raise
    except (OSError, ValueError) as error:
        raise OutputError(f"the result cannot be written to standard output: {error}") from None


def finish() -> None:
    """Write out what is still held back. Raises OutputError and BrokenPipeError."""
    if sys.stdout is not None:
        try:
            sys.stdout.flush()
        except BrokenPipeError:
            raise
        except (OSError, ValueError) as error:
            raise OutputError(f"the result cannot be written to standard output: {error}") from None
