"""Results that a user has asked for, on standard output. What we only say goes to standard error, through `say`."""

from __future__ import annotations

import sys
import textwrap

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


def render_check(result: str, check: str, detail: str) -> str:
    """One line of a list of checks, within 80 columns."""
    first = f"{result:4}  {check:10} "
    return textwrap.fill(
        detail,
        80,
        initial_indent=first,
        subsequent_indent=" " * len(first),
        break_long_words=False,
        break_on_hyphens=False,
    )


def cut(text: str, width: int) -> str:
    """The beginning of one line."""
    line = " ".join(text.split())
    return line if len(line) <= width else f"{line[: width - 3]}..."


def finish() -> None:
    """Write out what is still held back. Raises OutputError and BrokenPipeError."""
    if sys.stdout is not None:
        try:
            sys.stdout.flush()
        except BrokenPipeError:
            raise
        except (OSError, ValueError) as error:
            raise OutputError(f"the result cannot be written to standard output: {error}") from None
