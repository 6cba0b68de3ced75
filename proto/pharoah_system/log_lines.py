"""Logs whose lines nobody else can write: a message is one line, and holds nothing that a terminal would obey."""

from __future__ import annotations

import logging

from pharoah_system.text import one_line, printable_lines

_CONTINUED = "    "
"""How the further lines of an entry begin, such as those of a traceback: no line of an entry looks like another one."""


class LineFormatter(logging.Formatter):
    """The formatter of every log that a process of ours writes."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        record.message = one_line(record.message)
        return super().formatMessage(record)

    def format(self, record: logging.LogRecord) -> str:
        first, *rest = printable_lines(super().format(record)).split("\n")
        return "\n".join([first, *(_CONTINUED + line for line in rest)])


def log_to_standard_error(level: int, form: str = logging.BASIC_FORMAT) -> None:
    """Begin to log. `form` is that of `logging.Formatter`; what it holds besides its fields must be our own."""
    handler = logging.StreamHandler()
    handler.setFormatter(LineFormatter(form))
    logging.basicConfig(level=level, handlers=[handler])


def with_one_line(record: logging.LogRecord) -> bool:
    """A filter for a logger whose handlers are those of the user's program: the message becomes one printable line."""
    try:
        record.msg, record.args = one_line(record.getMessage()), None
    except Exception:  # noqa: BLE001 - a message that cannot be made is for the handler, which must not fail either
        record.msg, record.args = one_line(str(record.msg)), None
    return True
