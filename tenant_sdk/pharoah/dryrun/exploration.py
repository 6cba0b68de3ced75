"""Branches on values that a dry run does not have: both ways are followed, each in a process of its own.

At such a branch the process forks. The new process follows the more plausible way. The old one waits at the branch;
when everything behind it has ended, it follows the other way itself. So the most plausible way is followed first, and
only one process of a dry run works at a time. Every process reports through the same pipe, and each line states the
decisions that led to it (`pharoah.dryrun.ways` reads them).

Runs in the dry-run child only.
"""

from __future__ import annotations

import linecache
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import NoReturn

from pharoah.dryrun.audit_hook import forking
from pharoah.dryrun.places import caller_frame, is_installed, place_of
from pharoah.dryrun.reports import Decision
from pharoah_system.parent_process import end_with_parent

MAX_BRANCHES = 6
"""Branches on one way that are followed both ways; later ones go the plausible way. Real training loops have one to
three before their first step (`python -m evaluation coverage`)."""
MAX_VISITS = 3
"""How often one line of the script decides the same: a loop that waits for a value to become small must end. A line of
a library goes on as it began: there it is a check of an argument, and the other way is its error."""
MAX_SHARE = 0.5
"""How much of the remaining time the plausible way may take before the other one is followed instead."""
_POLL_SECONDS = 0.005


class DataDependentBranch(BaseException):
    """The script needs a value that a dry run does not have. A BaseException, so that scripts do not catch it."""


class UnknownValues:
    """What happens when a script needs a value that was not computed: the dry run ends with a reason."""

    def __init__(self, report: Callable[[str], None]) -> None:
        """`report` gets the reason before the exception is raised."""
        self.report = report
        self.assumed: list[str] = []
        """Values that were made up, one sentence each."""

    def decide(self, plausible: bool, what: str) -> bool:
        """Which way a branch goes. Raises DataDependentBranch."""
        del plausible
        self.refuse(what)

    def assume(self, what: str) -> None:
        """Record that a value was made up."""
        place = place_of(caller_frame())
        if (sentence := f"{place}: {what}") not in self.assumed:
            self.assumed.append(sentence)

    def refuse(self, what: str) -> NoReturn:
        """End the dry run. Raises DataDependentBranch."""
        reason = f"the script {what} before its first optimizer step ({place_of(caller_frame())})"
        self.report(reason)
        raise DataDependentBranch(reason)


class Explorer(UnknownValues):
    """Follows both ways of a branch, most plausible first, until the time is over."""

    def __init__(self, report: Callable[[str], None], branched: Callable[[Decision], None], deadline: float) -> None:
        """`branched` gets every decision whose other way will be followed too; `deadline` is on the steady clock."""
        super().__init__(report)
        self._branched, self._deadline = branched, deadline
        self._visits: Counter[str] = Counter()
        self._decided: dict[str, bool] = {}
        self._forks = 0
        self.decisions: list[Decision] = []
        """What was decided on the way so far."""

    def decide(self, plausible: bool, what: str) -> bool:
        """Which way a branch goes in this process; both ways are followed. Raises DataDependentBranch in threads."""
        if threading.current_thread() is not threading.main_thread():
            self.refuse(f"{what} in a thread")
        frame = caller_frame()
        place = place_of(frame)
        self._visits[place] += 1
        if place in self._decided:
            waits = self._visits[place] > MAX_VISITS and not is_installed(frame.f_code.co_filename)
            return self._decided[place] ^ waits
        line = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
        holds = self._both_ways(place, line, plausible)
        self._decided[place] = holds
        return holds

    def _both_ways(self, place: str, line: str, plausible: bool) -> bool:
        """True or false in the process that follows this way."""
        decision = Decision(place, line, plausible)
        if self._forks < MAX_BRANCHES:
            self._forks += 1
            self._branched(decision)
            try:
                with forking():
                    child = os.fork()
            except OSError:  # a sandbox without isolation, or a machine that is full
                self.refuse("branches on a computed value")
            if child:
                self._wait(child)
                decision = Decision(place, line, not plausible)
            else:
                end_with_parent()
        self.decisions.append(decision)
        return decision.holds

    def _wait(self, child: int) -> None:
        """Until the other process has ended, or has used its share of the time."""
        until = time.monotonic() + MAX_SHARE * (self._deadline - time.monotonic())
        while os.waitpid(child, os.WNOHANG) == (0, 0):
            if time.monotonic() > until:
                os.kill(child, signal.SIGKILL)  # those that it has started die with it
                os.waitpid(child, 0)
                return
            time.sleep(_POLL_SECONDS)
