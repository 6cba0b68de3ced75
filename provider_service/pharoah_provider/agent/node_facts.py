"""All facts of a node: those of its processes, those that the registry reads, and those that its operator gives."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pharoah_provider.agent.facts import FACT_GROUPS, FactGroup
from pharoah_provider.agent.facts._group import FACT_NAME, MAX_VALUE_LENGTH

log = logging.getLogger("pharoah.agent")

PERIOD_SECONDS = 60.0
"""How often facts are read. One reading takes 2 ms without a GPU."""
MAX_GIVEN = 16
"""Facts that an operator may give; the provider accepts 64 in all."""


def parse_given_facts(texts: Iterable[str]) -> dict[str, str]:
    """The facts that an operator gives as `NAME=VALUE`, such as `cooling_zone=b2`. Raises ValueError."""
    found: dict[str, str] = {}
    reserved = {name for group in FACT_GROUPS for name in group.facts}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not FACT_NAME.fullmatch(name) or not value or len(value) > MAX_VALUE_LENGTH:
            raise ValueError(f"--fact {text}: expected NAME=VALUE with a lower-case name and a value")
        if not value.isprintable():
            raise ValueError(f"--fact {text!r}: the value must be printable")
        if name in found or name in reserved:
            raise ValueError(f"--fact {text}: {name} is {'given twice' if name in found else 'read by the agent'}")
        found[name] = value
    if len(found) > MAX_GIVEN:
        raise ValueError(f"--fact: {len(found)} facts, at most {MAX_GIVEN}")
    return found


@dataclass
class NodeFacts:
    """The facts of one node. `fixed`: what its processes see, and what its operator gives."""

    fixed: Mapping[str, object]
    groups: Iterable[FactGroup] = field(default_factory=lambda: FACT_GROUPS)
    _failed: set[str] = field(default_factory=set, init=False)
    """Groups that could not be read, so that each is reported once."""

    def read(self) -> dict[str, object]:
        """Name to value, now. A fact that cannot be read is absent; one that is fixed is not read."""
        found: dict[str, object] = {}
        for group in self.groups:
            values = self._values(group)
            found |= {name: value[:MAX_VALUE_LENGTH] for name in group.facts if (value := _clean(values.get(name, "")))}
        return {**found, **self.fixed}

    def _values(self, group: FactGroup) -> Mapping[str, str]:
        try:
            return group.read()
        except Exception as error:  # noqa: BLE001 - a driver, or code of another distribution
            if group.name not in self._failed:
                log.warning("the facts %s cannot be read: %s: %s", group.name, type(error).__name__, error)
            self._failed.add(group.name)
            return {}


def _clean(value: str) -> str:
    return "".join(character for character in value if character.isprintable()).strip()
