"""Who or what caused a failure, by rule and before anything is counted.

The rules are data (`rules.toml`): words of Python, torch, CUDA, NCCL, Slurm and the kernel, each with the attribution
that they justify. The module needs the standard library only, so that a tenant attributes its own failures with the
same rules as a provider that imports past runs.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

from pharoah_protocol.attribution._lines import TRACEBACK, bare, is_warning
from pharoah_protocol.vocabulary import Attribution, EndState, Outcome

MAX_LINES = 10_000
"""Lines of one log that are read: each costs about 0.1 to 0.2 ms (2-core container)."""
SIGNAL_BASE = 128
"""A shell reports a process that a signal has ended as 128 plus the number of the signal (POSIX, Exit Status)."""


class Strength(StrEnum):
    """How much a line says about the cause. The members are in the order in which they win."""

    EVIDENCE = "evidence"
    """It states the cause itself."""
    CAUSE = "cause"
    """It is the error that ended a process."""
    SYMPTOM = "symptom"
    """It is what others see of a failure; something else may stand behind it."""


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One rule. Raises ValueError that names the rule for a field that cannot be used."""

    name: str
    attribution: Attribution
    strength: Strength
    why: str
    """One sentence."""
    source: str
    """The public software or standard whose words these are."""
    pattern: re.Pattern[str] | None = None
    """It is searched in the beginning of each line, without colours of a terminal and prefixes of launchers. It has no
    unbounded repeat of any character (`.*`): a line that begins it again and again would take its square in time."""
    exit_statuses: frozenset[int] = frozenset()
    """Exit statuses that speak where no line does."""
    end_states: frozenset[EndState] = frozenset()
    """End states that speak whatever the lines say."""
    outcome: Outcome | None = None
    """What the failure is, where the rule knows it."""
    examples: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not (self.pattern or self.exit_statuses or self.end_states):
            raise ValueError(f"rule {self.name}: needs a pattern, exit_statuses or end_states")
        if not self.why or not self.source:
            raise ValueError(f"rule {self.name}: why and source must not be empty")

    def explains(self, line: str) -> bool:
        """Whether its pattern occurs in the line."""
        return bool(self.pattern and self.pattern.search(line))


class Cause(NamedTuple):
    """What is known about the cause of one failure."""

    attribution: Attribution
    outcome: Outcome | None
    rule: str
    """The name of the rule; empty where none speaks."""
    line: str
    """The line that the rule matched, without prefixes; empty where it did not need one."""


UNEXPLAINED = Cause(Attribution.UNKNOWN, None, "", "")
"""Nothing that is known speaks about the failure."""


@dataclass(frozen=True)
class Rules:
    """Rules in the order of the file; the first one of the greatest strength wins."""

    rules: tuple[Rule, ...]
    _by_status: dict[int, Rule] = field(init=False, repr=False)
    _by_state: dict[EndState, Rule] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        statuses = {status: rule for rule in reversed(self.rules) for status in rule.exit_statuses}
        states = {state: rule for rule in reversed(self.rules) for state in rule.end_states}
        object.__setattr__(self, "_by_status", statuses)
        object.__setattr__(self, "_by_state", states)

    def cause(self, end_state: EndState, lines: Iterable[str] = (), exit_status: int | None = None) -> Cause:
        """Who or what caused the end of a run.

        A run that ended well has no cause, whatever its log holds: programs print errors that they recover from. Of
        several lines of one strength the first one counts, because failures cause later ones; of errors that ended a
        process, the first one below a traceback where there is one. Of a warning only evidence counts.
        """
        if end_state is EndState.OK:
            return UNEXPLAINED
        if rule := self._by_state.get(end_state):
            return Cause(rule.attribution, rule.outcome, rule.name, "")
        if found := self._in(_first_and_last(lines)):
            return found
        if exit_status is not None and (rule := self._by_status.get(exit_status)):
            return Cause(rule.attribution, rule.outcome, rule.name, "")
        return UNEXPLAINED

    def _in(self, lines: Iterable[str]) -> Cause | None:
        found: dict[Strength, Cause] = {}
        above: Cause | None = None  # the cause that stands above the first traceback
        raised = warns = False
        for line in map(bare, lines):
            if not raised and TRACEBACK in line:
                raised, above = True, found.pop(Strength.CAUSE, None)
            warns = is_warning(line) or (warns and line.startswith("  "))  # below it Python shows the line of the code
            wanted = {Strength.EVIDENCE} if warns else set(Strength) - set(found)
            if rule := self._explaining(line, wanted):
                found[rule.strength] = Cause(rule.attribution, rule.outcome, rule.name, line.strip())
            if Strength.EVIDENCE in found:
                break
        if above:
            found.setdefault(Strength.CAUSE, above)
        return next((found[strength] for strength in Strength if strength in found), None)

    def _explaining(self, line: str, wanted: Container[Strength]) -> Rule | None:
        """The first rule of a `wanted` strength that explains a line."""
        return next((rule for rule in self.rules if rule.strength in wanted and rule.explains(line)), None)


def _first_and_last(lines: Iterable[str]) -> list[str]:
    """All lines, or the first and last of very many: a failure causes later lines, and ends the log."""
    found = list(lines)
    return found if len(found) <= MAX_LINES else [*found[: MAX_LINES // 2], *found[-MAX_LINES // 2 :]]


@cache
def rules() -> Rules:
    """The rules of this release. Raises ValueError that names the rule which cannot be used."""
    text = resources.files(__package__).joinpath("rules.toml").read_text(encoding="utf-8")
    return Rules(tuple(rule_of(data) for data in tomllib.loads(text)["rule"]))


def rule_of(data: dict[str, Any]) -> Rule:
    """One rule from its table. Raises ValueError."""
    try:
        return Rule(
            name=data["name"],
            attribution=Attribution(data["attribution"]),
            strength=Strength(data["strength"]),
            why=data["why"],
            source=data["source"],
            pattern=re.compile(_join(data["pattern"])) if "pattern" in data else None,
            exit_statuses=frozenset(data.get("exit_statuses", ())),
            end_states=frozenset(EndState(state) for state in data.get("end_states", ())),
            outcome=Outcome(data["outcome"]) if "outcome" in data else None,
            examples=tuple(data.get("examples", ())),
        )
    except KeyError as missing:
        raise ValueError(f"rule {data.get('name', '?')}: {missing.args[0]} is missing") from None
    except re.error as error:
        raise ValueError(f"rule {data['name']}: pattern: {error}") from None


def _join(pattern: str | list[str]) -> str:
    """One expression of several, of which one is enough."""
    return pattern if isinstance(pattern, str) else "|".join(pattern)
