"""The node profile that an agent sends, made of whatever came: what can be used is kept, and the rest is named.

An agent may be of a newer release, wrong, or somebody else. None of that may keep a job from starting.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pharoah_protocol.node_profile import NO_LIMITS, READERS, NodeProfile
from pharoah_system.text import render_value, sanitize_text

MAX_DROPPED_NAMED = 5
"""A verdict names so many parts that were dropped; more of them say no more to a reader."""
_MAX_KEY_LENGTH = 40


@dataclass(frozen=True)
class ReceivedProfile:
    """A profile of which every value can be used, and what had to be dropped."""

    profile: NodeProfile = NO_LIMITS
    dropped: tuple[str, ...] = ()
    """For each part the key and why, in words."""


def read_received_profile(profile: object) -> ReceivedProfile:
    """The usable part of what an agent has sent. Raises nothing for any value of JSON."""
    if profile is None:
        return ReceivedProfile()
    if not isinstance(profile, dict):
        return ReceivedProfile(dropped=(f"all of it: an object was expected, not {render_value(profile)}",))
    values: dict[str, Any] = {}
    dropped: list[str] = []
    for key, value in profile.items():
        if key not in READERS:
            dropped.append(f"{sanitize_text(key, _MAX_KEY_LENGTH)}: this release does not know it")
            continue
        try:
            values[key] = READERS[key](value)
        except (ValueError, RecursionError) as error:
            dropped.append(f"{key}: {str(error).removeprefix('ceilings: ')}")
    return ReceivedProfile(NodeProfile(**values), _few(dropped))


def _few(dropped: list[str]) -> tuple[str, ...]:
    if len(dropped) <= MAX_DROPPED_NAMED:
        return tuple(dropped)
    return (*dropped[:MAX_DROPPED_NAMED], f"and {len(dropped) - MAX_DROPPED_NAMED} more")
