"""Which steps of optimizers are open: one may call the step of another one, or that of the class it derives from, and
torch calls its hooks for each. It imports no torch."""

from __future__ import annotations

import sys
import threading

_CALLER_OF_HOOK = 3
"""Frames from `_is_inside_a_step` to the function of torch that calls a hook: this class and the hook are between."""


class OpenSteps(threading.local):
    """Counts the open steps of a thread. An exception ends a step without a second hook, so that a count above 0 is
    compared with the stack of Python, which takes some microseconds."""

    count = 0

    def begin(self) -> bool:
        """A step begins. Whether it is the outermost one. Only a hook may call this."""
        if self.count and not _is_inside_a_step():
            self.count = 0
        self.count += 1
        return self.count == 1

    def end(self) -> bool:
        """A step ends. Whether it was the outermost one. Only a hook may call this."""
        if self.count > 1 and _is_inside_a_step():
            self.count -= 1
            return False
        self.count = 0
        return True


def _is_inside_a_step() -> bool:
    """Whether the function of torch that has called the hook is called by itself, at any distance."""
    step = sys._getframe(_CALLER_OF_HOOK)
    outer = step.f_back
    while outer is not None and outer.f_code is not step.f_code:
        outer = outer.f_back
    return outer is not None
