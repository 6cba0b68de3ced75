"""Which time a server acts on: the wall clock, unless it has jumped against the clock that counts since boot.

A wall clock may be set to a wrong date and back at any moment, also while the server is not running. After a jump of
more than an hour the guard continues the time from before. It follows the wall clock again when the wall clock returns,
when the nodes' signed times agree with it, when an operator confirms it, or when a day and an hour are over: nothing
that was served is valid for longer (ADR 24).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from math import inf
from pathlib import Path
from typing import Any

from pharoah_protocol.node_ticket import LIFETIME_SECONDS
from pharoah_serving.clock import Clock
from pharoah_system.bounded_reading import parse_json
from pharoah_system.files import write_atomically
from pharoah_system.trusted_paths import own_content

log = logging.getLogger("pharoah.provider.time")

MAX_JUMP_SECONDS = 3600.0
"""A larger difference to the steady clock within a day is a jump. Steps of NTP and leap seconds stay far below it."""
DAY_SECONDS = 86_400.0
HOLD_SECONDS = 25 * 3600.0
"""An epoch is valid for as long (`sealing.LIFETIME_SECONDS`)."""
DOUBT_SECONDS = 30 * DAY_SECONDS
"""After a time that nobody has confirmed nothing is destroyed for as long as seeds are kept for audits (ADR 13)."""
MAX_OFF_SECONDS = 26 * 3600.0
"""After longer, either the machine was off, or its clock was set wrong meanwhile: the server cannot know which."""
FORMER_OFFSETS = 4
MAX_NODES = 1024
"""Nodes whose signed times are remembered during a jump."""
STATE_FILE = "clock.json"
CONFIRMATION_FILE = "confirmed-time"


@dataclass
class ClockState:
    """What is remembered over a restart."""

    boot_id: str = ""
    since_boot: float = 0.0
    """Seconds since boot when this was written."""
    wall: float = 0.0
    """Unix seconds that were acted on when this was written."""
    observed_seconds: float = 0.0
    """Seconds that have certainly passed since the first start: what the clock since boot has counted."""
    doubted_at: float | None = None
    """`observed_seconds` when a time was accepted that nobody has confirmed; None without doubt."""
    former: list[float] = field(default_factory=list)
    """Earlier differences between wall clock and clock since boot, for as long as the machine is not restarted."""
    first_looks: dict[str, float] = field(default_factory=dict)
    """What waits to be destroyed, and `observed_seconds` when it was first found to be due."""
    first_seen: dict[str, float] = field(default_factory=dict)
    """What will have to be destroyed, and `observed_seconds` when it was first seen."""


class TimeGuard:
    """The guarded clock of one server. Not thread-safe: it belongs to the event loop."""

    def __init__(self, raw: Clock, folder: Path | None, not_before: float = 0.0) -> None:
        """`folder` keeps the state; without one nothing is remembered. `not_before` is a time (unix seconds) that has
        certainly been, such as that of the newest signature."""
        self._raw, self._folder = raw, folder
        self._state = _read(folder)
        self._for_wall: set[str] = set()
        self._against_wall: set[str] = set()
        self._stated: dict[str, float] = {}
        """The newest time that each node has stated during the present jump."""
        self.changes = 0
        """How often a jump began or ended: both may happen between two looks of somebody else."""
        self._jumped_at: float | None = None
        """Seconds since boot when the present jump was noticed."""
        self._anchored_at = raw.since_boot()
        self._is_bound = False
        """Whether `_offset` stands for the earliest possible time only: this machine has been off since then."""
        self._offset = self._first_offset(not_before)
        """Wall clock minus clock since boot, as it is held to be right."""
        self.look()

    @property
    def clock(self) -> Clock:
        """The clock for everything else in the server."""
        raw = self._raw
        return Clock(self.now, raw.steady, raw.since_boot, raw.boot_id, self.note_stated_time)

    @property
    def jumped(self) -> bool:
        """Whether the wall clock shows another time than the guard."""
        self.look()
        return self._jumped_at is not None

    @property
    def trusted(self) -> bool:
        """Whether something may be destroyed because it is old."""
        return not self.jumped and self._state.doubted_at is None

    def now(self) -> float:
        """Unix seconds to act on."""
        return self._raw.since_boot() + self._offset if self.jumped else self._raw.wall()

    def look(self) -> None:
        """Compare the clocks; notice a jump, and its end."""
        at, offset = self._raw.since_boot(), self._raw.wall() - self._raw.since_boot()
        if abs(offset - self._offset) <= MAX_JUMP_SECONDS:
            if self._jumped_at is not None:
                self._follow(offset, "is right again")
            elif at - self._anchored_at >= DAY_SECONDS:  # small steps of several days do not add up to a jump
                self._anchored_at, self._offset = at, offset
        elif self._is_bound and offset > self._offset:
            self._follow(offset, "shows a possible time")
        elif former := [old for old in self._state.former if abs(offset - old) <= MAX_JUMP_SECONDS]:
            self._state.former.remove(former[0])
            self._follow(offset, "continues an earlier time")
        elif self._jumped_at is None:
            self._jumped_at = at
            self.changes += 1
            log.error(
                "the clock has jumped by %.0f s: nothing is sealed and nothing is destroyed until it is right again; "
                "if the new time is right, confirm it with `confirm-time`",
                offset - self._offset,
            )
        elif at - self._jumped_at > HOLD_SECONDS:
            self.accept("has shown its new time for more than a day")

    def note_stated_time(self, who: str, at: float) -> None:
        """A time (unix seconds) that somebody else has signed, such as a node in its ticket.

        It counts only while it is fresh, by the guard's time or by the wall clock, and during a jump only when it is
        newer than what they have stated before: an old ticket that is sent again says nothing about the time now.
        """
        agrees, fresh = (abs(at - now) <= LIFETIME_SECONDS for now in (self._raw.wall(), self.now()))
        if not (agrees or fresh):
            return
        if not self.jumped:
            if self._state.doubted_at is not None:
                self._state.doubted_at = None
                log.info("%s shows the same time as this machine", who)
            return
        side = self._for_wall if agrees else self._against_wall
        if at > self._stated.get(who, -inf) and (who in side or len(side) < MAX_NODES):
            self._stated[who] = at
            side.add(who)
        if len(self._for_wall) > len(self._against_wall):
            self.accept("agrees with the clocks of the nodes", doubted=False)

    def accept(self, reason: str, *, doubted: bool = True) -> None:
        """Act on the wall clock as it is now.

        With `doubted`, nothing is destroyed for a while, a return to the time from before is followed at once, and a
        time that is before the newest signature is not accepted after a restart.
        """
        if self._jumped_at is not None and not (doubted and self._is_bound):
            self._state.former = [*self._state.former, self._offset][-FORMER_OFFSETS:] if doubted else []
            self._state.doubted_at = self.observed_seconds if doubted else None
            self._follow(self._raw.wall() - self._raw.since_boot(), reason)

    @property
    def observed_seconds(self) -> float:
        """Seconds that have certainly passed since the first start, whatever the wall clock shows."""
        return self._state.observed_seconds + max(0.0, self._raw.since_boot() - self._state.since_boot)

    def keep(self) -> None:
        """Follow an operator's confirmation, and write the state."""
        self._take_confirmation()
        now, at = self.now(), self._raw.since_boot()
        self._state.observed_seconds = self.observed_seconds
        self._state.since_boot, self._state.boot_id, self._state.wall = at, self._raw.boot_id(), now
        if self._state.doubted_at is not None and self._state.observed_seconds - self._state.doubted_at > DOUBT_SECONDS:
            self._state.doubted_at = None
        try:
            if self._folder is not None:
                write_atomically(self._folder / STATE_FILE, json.dumps(asdict(self._state)))
        except OSError as error:
            log.warning("the time is not remembered over a restart: %s", error)

    def destroyable(self, kept: set[str], due: set[str], age_seconds: float) -> set[str]:
        """What may be destroyed now of the names that are `kept`, which are `due` by the wall clock.

        It was seen for `age_seconds`, and was due a day ago as well. Both are counted by the clock since boot, over
        restarts as well. Empty while the time is not trusted.
        """
        seen, now = self._state.first_seen, self.observed_seconds
        self._state.first_seen = {name: seen.get(name, now) for name in kept}
        if not self.trusted:
            return set()
        old = {name for name in due & kept if now - self._state.first_seen[name] >= age_seconds}
        looks = self._state.first_looks
        self._state.first_looks = {name: looks.get(name, now) for name in old}
        return {name for name, first in self._state.first_looks.items() if now - first >= DAY_SECONDS}

    def _follow(self, offset: float, reason: str) -> None:
        self._offset, self._anchored_at, self._jumped_at = offset, self._raw.since_boot(), None
        self._is_bound = False
        self.changes += 1
        self._for_wall.clear()
        self._against_wall.clear()
        self._stated.clear()
        log.warning("the clock %s: sealing goes on", reason)

    def _first_offset(self, not_before: float) -> float:
        """What the state says about the time now; the wall clock where it says nothing."""
        state, at, wall = self._state, self._raw.since_boot(), self._raw.wall()
        if state.boot_id and state.boot_id == self._raw.boot_id() and at >= state.since_boot:
            return state.wall - state.since_boot
        other_boot = bool(state.boot_id) and state.boot_id != self._raw.boot_id()
        state.since_boot = 0.0 if other_boot else at  # what another boot has counted has passed for certain
        state.former = []
        earliest = max(not_before, state.wall)
        if earliest and wall > earliest + MAX_OFF_SECONDS:
            log.warning("this machine was off for %.1f days, or its clock is wrong", (wall - earliest) / DAY_SECONDS)
            state.doubted_at = state.observed_seconds
        self._is_bound = wall < earliest - MAX_JUMP_SECONDS
        return (earliest if self._is_bound else wall) - at

    def _take_confirmation(self) -> None:
        """An operator confirms a time by a file that holds it (`confirm`); the file is used once."""
        file = self._folder / CONFIRMATION_FILE if self._folder else None
        if file is None or not file.exists():
            return
        text = None
        try:
            text = own_content(file).decode()
        except (OSError, UnicodeDecodeError) as error:
            log.error("%s cannot be read (%s): confirm the time as the user that the server runs as", file, error)
        try:
            file.unlink(missing_ok=True)
        except OSError as error:
            log.error("%s is not used, because it cannot be removed: %s", file, error)
            return
        if text is not None:
            self._confirm(text)

    def _confirm(self, text: str) -> None:
        try:
            confirmed = float(text)
        except ValueError:
            confirmed = 0.0
        if abs(confirmed - self._raw.wall()) <= MAX_JUMP_SECONDS:
            self.accept("was confirmed by an operator", doubted=False)
            self._state.doubted_at = None
        else:
            log.error("another time was confirmed than the one that this machine shows now; confirm it again")


def confirm(folder: Path, now: float) -> None:
    """Confirm that `now` (unix seconds) is right; the server of the folder reads it within a minute. Raises OSError.

    The file belongs to the owner of the folder, who must be able to read it, also when root confirms.
    """
    write_atomically(folder / CONFIRMATION_FILE, str(now), owner_of=folder)


def _read(folder: Path | None) -> ClockState:
    """The remembered state; an empty one without any, and where it cannot be read: the time is then only doubted."""
    file = folder / STATE_FILE if folder else None
    if file is None or not file.exists():
        return ClockState()
    try:
        data: Mapping[str, Any] = parse_json(own_content(file), file)
        return ClockState(
            boot_id=str(data["boot_id"]),
            since_boot=float(data["since_boot"]),
            wall=float(data["wall"]),
            observed_seconds=float(data["observed_seconds"]),
            doubted_at=None if data["doubted_at"] is None else float(data["doubted_at"]),
            former=[float(offset) for offset in data["former"]],
            first_looks={str(name): float(at) for name, at in data["first_looks"].items()},
            first_seen={str(name): float(at) for name, at in data["first_seen"].items()},
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        log.warning("%s cannot be read (%s): nothing is destroyed until a time is confirmed", file, error)
        return ClockState(doubted_at=0.0)
