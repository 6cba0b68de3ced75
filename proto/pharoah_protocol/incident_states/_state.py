"""The type of an incident state, and the registry of all of them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from pharoah_protocol.registry import Registry
from pharoah_protocol.typed_json import NamedText

GROUP = "pharoah.incident_states"
"""Entry points of this group are incident states of other distributions."""
UNKNOWN_CODE = 255
"""The code of a stored state whose distribution is no longer installed. Ours have 0 to 63, others 64 to 254."""
_NAME = re.compile("[a-z][a-z0-9_]{0,31}")


@dataclass(frozen=True)
class IncidentFacts:
    """What a rule may look at: the incident as the provider knows it now."""

    state: str
    """Name of the state that it is in."""
    kind: str
    """What is wrong with the node: `slow` or `lost`."""
    open_seconds: float
    """Time since the incident began."""


@dataclass(frozen=True)
class Rule:
    """How the provider moves an incident into a state on its own. It is asked once a second."""

    reached_from: tuple[str, ...]
    """Names of the states in which it is asked."""
    holds: Callable[[IncidentFacts], bool]


class IncidentState(NamedText):
    """One state of an incident of a node. It is its own name, so it is printed, stored and compared as a string."""

    code: int
    """The number on the wire, 0 to 255; it never changes its meaning."""
    help: str
    is_open: bool
    """Whether the incident goes on."""
    is_reported: bool
    """Whether runs on the node, its agent and offers of it hear of this state. The others stay with the provider."""
    rule: Rule | None
    """None for the states into which the monitor moves incidents by itself."""

    def __new__(
        cls, name: str, *, code: int, help: str, is_open: bool, is_reported: bool, rule: Rule | None = None
    ) -> Self:
        """Raises ValueError that names the state for a name, a code or a text that cannot be used."""
        if not _NAME.fullmatch(name):
            raise ValueError(f"incident state {name!r}: the name is not of the form {_NAME.pattern}")
        if not 0 <= code <= 255:
            raise ValueError(f"incident state {name}: code {code} is not between 0 and 255")
        if not help:
            raise ValueError(f"incident state {name}: help is empty")
        state = super().__new__(cls, name)
        state.code, state.help, state.rule = code, help, rule
        state.is_open, state.is_reported = is_open, is_reported
        return state

    @property
    def name(self) -> str:
        """The string itself."""
        return str(self)

    def __deepcopy__(self, _: object) -> Self:
        return self  # one object per state, so that states can be compared with `is`

    @classmethod
    def from_name(cls, name: object) -> IncidentState:
        """The registered state of this name. Raises ValueError that lists the names there are."""
        return INCIDENT_STATES[str(name)]

    @classmethod
    def from_code(cls, code: int) -> IncidentState:
        """The registered state with this code. Raises ValueError for a code that is not known here."""
        for state in INCIDENT_STATES:
            if state.code == code:
                return state
        raise ValueError(f"incident state: code {code} is not known to this installation")

    @classmethod
    def from_any_code(cls, code: int) -> IncidentState:
        """As `from_code`; a state that another installation has added counts as an open incident."""
        try:
            return cls.from_code(code)
        except ValueError:
            what = "A state that is not known here; the provider has added it."
            return cls(f"code_{code}", code=code, help=what, is_open=True, is_reported=True)

    @classmethod
    def from_any_name(cls, name: str) -> IncidentState:
        """As `from_name`; a stored state whose distribution is no longer installed counts as an open incident."""
        try:
            return cls.from_name(name)
        except ValueError:
            what = "A state that is not known here; its distribution is not installed."
            return cls(name, code=UNKNOWN_CODE, help=what, is_open=True, is_reported=True)


INCIDENT_STATES = Registry(IncidentState, "pharoah_protocol.incident_states", GROUP, unique=("code",))
"""All states by name."""
