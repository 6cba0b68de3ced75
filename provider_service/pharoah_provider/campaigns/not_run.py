"""Why a work has no result, and what brings it one (ADR 73).

A failure of the site is never an outcome of a cell. A work that is not run waits, or is set aside with its cause, and
`campaign resume` brings it back, whatever the cause.
"""

from __future__ import annotations

from enum import StrEnum

from pharoah_provider.agent_connection import AgentAway, CameLate, NoRoomThere, NotBuiltThere
from pharoah_serving.errors import NotReady

_RESUME = "`pharoah-provider campaign resume {campaign}` tries it again"


class NotRun(StrEnum):
    """Why a work has no result."""

    SAME_CODE = "same code"
    """Its environment executes the same code as another one, whose results hold for it as well."""
    DECIDED = "suspect decided"
    """The suspect that it was about is decided."""
    NOT_BUILT = "environment not built"
    """Its node could not build its environment."""
    AGENT_AWAY = "agent away"
    """The agent or worker that did it went away, in each of several attempts."""
    CAME_LATE = "came late"
    """Its result did not come back in time, in the last of several attempts."""
    NO_ROOM = "no room"
    """Its node had no memory, space or processor time for it, in the last of several attempts."""
    ATTEMPTS_FAILED = "attempts failed"
    """Several attempts failed for another reason."""
    NODES_LEFT = "nodes left"
    """All nodes that could do it have left the campaign."""
    IN_TURN = "in turn"
    """It waits: its campaign runs."""
    NOT_BEGUN = "campaign planned"
    """It waits: its campaign was planned, and has not begun."""
    PAUSED = "campaign paused"
    """It waits: no node could do it."""
    CANCELLED = "campaign cancelled"
    """It waits: an operator has ended its campaign."""
    BUDGET_USED = "budget used up"
    """It waits: it does not fit into what is left of the budget."""

    @property
    def needs_no_run(self) -> bool:
        """Whether nothing is missing without its result."""
        return self in (NotRun.SAME_CODE, NotRun.DECIDED)

    @property
    def remedy(self) -> str:
        """What to do, with a place for the id of the campaign."""
        match self:
            case NotRun.SAME_CODE | NotRun.DECIDED:
                return "nothing: its result is not needed"
            case NotRun.NOT_BUILT:
                return f"remove what keeps the node from building the environment; {_RESUME}"
            case NotRun.AGENT_AWAY:
                return f"see the log of the agent for why it ended; {_RESUME}"
            case NotRun.CAME_LATE | NotRun.NO_ROOM:
                return f"free the node of other work; {_RESUME}"
            case NotRun.ATTEMPTS_FAILED | NotRun.PAUSED:
                return f"remove what the reason names; {_RESUME}"
            case NotRun.NODES_LEFT:
                return f"start the agent of the node; {_RESUME}"
            case NotRun.IN_TURN:
                return "nothing: its campaign runs"
            case NotRun.NOT_BEGUN | NotRun.CANCELLED:
                return "`pharoah-provider campaign resume {campaign}` runs it"
            case NotRun.BUDGET_USED:
                return "`pharoah-provider campaign resume {campaign} --budget-minutes N` runs it, N minutes in all"


def cause_of(error: NotReady) -> NotRun:
    """Why a work is set aside whose last attempt ended with this error."""
    match error:
        case NotBuiltThere():
            return NotRun.NOT_BUILT
        case AgentAway():
            return NotRun.AGENT_AWAY
        case CameLate():
            return NotRun.CAME_LATE
        case NoRoomThere():
            return NotRun.NO_ROOM
        case _:
            return NotRun.ATTEMPTS_FAILED
