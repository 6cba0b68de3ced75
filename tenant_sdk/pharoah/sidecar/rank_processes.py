"""Which process of this machine is which rank of the job.

A process says its rank when it connects and with its steps, and not every word is final. Ranks that register before
there is a process group all say 0 at first, and so does any other program that the job starts. A launcher that starts
a rank again gives its number to another process, and a pipeline of two trainings runs both as rank 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from pathlib import Path

_ENDED = ("Z", "X")
"""States of a process that has ended and was not waited for yet (proc_pid_stat(5))."""


class Standing(Enum):
    """What steps of a process mean."""

    KNOWN = auto()
    """It is the process of its rank."""
    NEW = auto()
    """It had another number before."""
    NEXT = auto()
    """It has taken the place of a process that has ended: the rank was started again, or another program runs."""
    OTHER = auto()
    """Another process of this rank lives and steps, so these are not the steps of the rank."""


def lives(process: int) -> bool:
    """Whether a process has not ended."""
    try:
        stat = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in _ENDED


@dataclass
class RankProcesses:
    """The ranks of one job on this machine."""

    lives: Callable[[int], bool] = lives
    _processes: dict[int, int] = field(default_factory=dict, init=False)
    _stepping: set[int] = field(default_factory=set, init=False)
    """Processes that have stepped under their number."""

    @property
    def by_rank(self) -> Mapping[int, int]:
        """Rank to process."""
        return dict(self._processes)

    def add_process(self, rank: int, process: int) -> Standing:
        """A process has connected and says that it is this rank."""
        known = self._processes.get(rank)
        if known == process or (known is None and process not in self._processes.values()):
            self._processes[rank] = process
            return Standing.KNOWN
        if known is None or self.lives(known):
            return Standing.OTHER
        self._processes[rank] = process
        return Standing.NEXT

    def note_step(self, rank: int, process: int) -> Standing:
        """A process says that this rank has stepped."""
        known = self._processes.get(rank)
        if known is not None and known != process and known in self._stepping and self.lives(known):
            return Standing.OTHER
        was = [number for number, one in self._processes.items() if one == process and number != rank]
        for number in was:
            del self._processes[number]
        self._processes[rank] = process
        self._stepping.add(process)
        if known not in (None, process) and not self.lives(known):
            return Standing.NEXT
        return Standing.KNOWN if known in (None, process) and not was else Standing.NEW
