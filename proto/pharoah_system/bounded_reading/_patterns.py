"""Regular expressions out of files, and texts of others that patterns are searched in."""

from __future__ import annotations

import re
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from pharoah_system.bounded_reading._content import UnreadableInput

MAX_SEARCHED = 2_000
"""Characters of a line or a value in which a pattern is searched: what names a cause stands at its beginning."""
MAX_PATTERN = 1_000
"""Characters of a pattern."""
MAX_SEARCH_SECONDS = 0.25
"""Processor time of one search: honest ones take microseconds."""


@dataclass(frozen=True)
class BoundedPattern:
    """A pattern out of a file. A search that takes too long ends in UnreadableInput, which names the pattern.

    Python's `re` goes back and tries again, so that `(a+)+$` takes for ever. It looks for signals while it does, and a
    timer of the process ends the search. A timer is the main thread's: elsewhere no such pattern is searched.
    """

    source: str
    """Where it stands, for errors."""
    pattern: re.Pattern[str]

    @classmethod
    def compile_pattern(cls, text: str, source: object) -> BoundedPattern:
        """Raises UnreadableInput for a text that is no pattern, or a very long one."""
        if len(text) > MAX_PATTERN:
            raise UnreadableInput(source, f"a pattern of more than {MAX_PATTERN:,} characters")
        try:
            with _time_limit(source):
                return cls(str(source), re.compile(text))
        except (re.error, RecursionError, OverflowError, MemoryError) as error:
            raise UnreadableInput(source, f"no regular expression: {error}") from None

    @property
    def groups(self) -> int:
        """How many groups the pattern has."""
        return self.pattern.groups

    def search(self, text: str) -> re.Match[str] | None:
        """What `re` finds in the first characters of a text. Raises UnreadableInput."""
        with _time_limit(self.source):
            return self.pattern.search(text[:MAX_SEARCHED])


@contextmanager
def _time_limit(source: object) -> Iterator[None]:
    """Inside, UnreadableInput is raised after a while of processor time."""
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("a pattern out of a file is searched in the main thread only")

    def end(_number: int, _frame: FrameType | None) -> None:
        took = f"it takes more than {MAX_SEARCH_SECONDS:g} s for one value"
        raise UnreadableInput(source, f"{took}: a repeat stands in another one, or beside one of the same letters")

    before = signal.signal(signal.SIGVTALRM, end)
    signal.setitimer(signal.ITIMER_VIRTUAL, MAX_SEARCH_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
        signal.signal(signal.SIGVTALRM, before)
