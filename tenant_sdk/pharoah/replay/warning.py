"""Why a step that the user wants saved is not saved."""

from __future__ import annotations

import logging

from pharoah_system.standard_streams import say

log = logging.getLogger("pharoah")


def warn(text: str) -> None:
    """Log a warning. Where the script shows no log, it is a line on standard error: the user has asked for a file, and
    would look for it in vain."""
    log.warning("%s", text)
    if not _is_shown():
        say(f"pharoah  {text}")


def _is_shown() -> bool:
    """Whether a handler shows what is logged."""
    at: logging.Logger | None = log
    while at is not None:
        if any(not isinstance(handler, logging.NullHandler) for handler in at.handlers):
            return True
        at = at.parent if at.propagate else None
    return False
