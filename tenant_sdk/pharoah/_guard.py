"""The one place where our own faults in a training process end: logged once, never raised. Under test they raise."""

from __future__ import annotations

import logging
import os
from types import TracebackType

from pharoah_system.log_lines import with_one_line

log = logging.getLogger("pharoah")
log.addHandler(logging.NullHandler())
log.addFilter(with_one_line)  # the handlers are the user's

DEBUG = "PHAROAH_DEBUG"
"""Any value: faults of Pharoah are logged with their traceback, and the sidecar logs to the job's standard error."""
RAISE = False
"""Set by the test suite: faults become failures."""


class Guard:
    """`with guard("what"):` lets the block fail without the job noticing. Ctrl-C and SystemExit pass."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._logged = False

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if fault is None or RAISE or not isinstance(fault, Exception):
            return False
        if not self._logged:
            self._logged = True
            log.warning("%s failed: %s", self._what, fault, exc_info=bool(os.environ.get(DEBUG)))
        return True
