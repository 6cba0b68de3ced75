"""Where a node does not do a work, either the work is the cause, or the node."""

from __future__ import annotations

from collections import Counter, defaultdict
from enum import Enum, auto

from pharoah_provider.campaigns.works import Work

MAX_ATTEMPTS = 3
"""A node is not given a work again that it has not done so often: the work may end its agent."""
MAX_CONTENTS = 2
"""A node that can do none of so many different cells, one after another, is taken to be the cause itself."""


MAX_WORKS = 3
"""So is one that could do none of so many works, one after another, also where all are repeats of one cell: others may
do the works that are left."""


class Consequence(Enum):
    """This follows from an attempt that failed."""

    TRY_AGAIN = auto()
    SET_WORK_ASIDE = auto()
    """The work may be the cause. It is not run until the campaign is resumed, and its node goes on."""
    EXCLUDE_NODE = auto()
    """The node is the cause; its works can be done later, or by others."""


class FailedAttempts:
    """It counts the attempts that failed since the campaign began or went on."""

    def __init__(self) -> None:
        self._attempts: Counter[tuple[str, int]] = Counter()
        """Attempts of a node to do a work (its number)."""
        self._not_done: defaultdict[str, list[str]] = defaultdict(list)
        """Node to the contents of works that it could not do since it did one."""

    def count(self, node: str, work: Work) -> Consequence:
        """An attempt of a node has failed."""
        self._attempts[node, work.number] += 1
        if self._attempts[node, work.number] < MAX_ATTEMPTS:
            return Consequence.TRY_AGAIN
        contents = self._not_done[node]
        contents.append(work.cell.content if work.cell else "")
        excluded = len(set(contents)) >= MAX_CONTENTS or len(contents) >= MAX_WORKS
        return Consequence.EXCLUDE_NODE if excluded else Consequence.SET_WORK_ASIDE

    def note_success(self, node: str) -> None:
        """A node has done a work."""
        self._not_done.pop(node, None)
