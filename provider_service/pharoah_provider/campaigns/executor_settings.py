"""Which executor runs a campaign, and how: what the campaign file or the command states, and what is stored."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pharoah_protocol.node_profile import NO_LIMITS, READERS, NodeProfile

DEFAULT_EXECUTOR = "agents"
MAX_SLOTS = 1024
"""More processes than that are a mistake: each holds torch in 200 MB of memory."""
MAX_ADDRESS_LENGTH = 256


@dataclass(frozen=True, kw_only=True)
class ExecutorSettings:
    """An executor by its name, and its options. What is absent is left to the executor."""

    name: str = DEFAULT_EXECUTOR
    slots: int = 0
    """How many works it does at a time; 0 lets the executor choose."""
    address: str = ""
    """The address of the cluster."""
    profile: NodeProfile = NO_LIMITS
    """The limits of each of its processes."""

    def options(self) -> dict[str, Any]:
        """The options that are stated, by their names."""
        stated = {"slots": self.slots, "address": self.address, "profile": self.profile.to_dict()}
        return {name: value for name, value in stated.items() if value}

    def to_json(self) -> str:
        return json.dumps({"name": self.name, **self.options()})

    @classmethod
    def from_json(cls, text: str) -> ExecutorSettings:
        """Read what `to_json` wrote; an empty object is the default executor. Raises ValueError."""
        return cls.check(json.loads(text))

    @classmethod
    def check(cls, data: Mapping[str, Any]) -> ExecutorSettings:
        """Read what an operator has written. Raises ValueError that names the option."""
        readers = {"name": _text, "slots": _slots, "address": _text, "profile": _profile}
        values: dict[str, Any] = {}
        for key, value in data.items():
            if key not in readers:
                raise ValueError(f"executor.{key}: unknown option; known are {', '.join(readers)}")
            try:
                values[key] = readers[key](value)
            except ValueError as error:
                raise ValueError(f"executor.{key}: {error}") from None
        return cls(**values)


ON_AGENTS = ExecutorSettings()
"""The default: the nodes of the fleet."""


def _text(value: object) -> str:
    if not isinstance(value, str) or not value.isprintable() or not 0 < len(value) <= MAX_ADDRESS_LENGTH:
        raise ValueError(f"{value!r:.40} is not a printable text of 1 to {MAX_ADDRESS_LENGTH} characters")
    return value


def _profile(value: object) -> NodeProfile:
    """A node profile, also of another machine: whether this one has its processors is not asked."""
    if not isinstance(value, Mapping):
        raise ValueError(f"an object was expected, not {value!r:.40}")
    if unknown := value.keys() - READERS.keys():
        raise ValueError(f"unknown key {min(unknown)!r}; known are {', '.join(READERS)}")
    read: dict[str, Any] = {}
    for key, one in value.items():
        try:
            read[key] = READERS[key](one)
        except ValueError as error:
            raise ValueError(f"{key}: {error}") from None
    return NodeProfile(**read)


def _slots(value: object) -> int:
    if type(value) is not int or not 1 <= value <= MAX_SLOTS:  # a bool is an int for isinstance
        raise ValueError(f"{value!r:.40} is not a whole number from 1 to {MAX_SLOTS}")
    return value
