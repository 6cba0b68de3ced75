"""Which context each node is in, now: what the rule of the release that is served makes of its facts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from pharoah_learning.context_rule import ALL_FACTS, KNOWN_CAUSES, ContextRule, KnownContext, Nearest, nearest
from pharoah_provider.domain import Node

MAX_NAMES = 16_384
"""Names that are remembered: more than a large fleet has sets of facts."""


@dataclass
class Contexts:
    """The rule that is in force. Before the first release every set of facts is a context."""

    rule: ContextRule = ALL_FACTS
    known: Sequence[KnownContext] = ()
    """The contexts of which the release has trials."""
    _names: dict[tuple[str, ...], str] = field(default_factory=dict, init=False)
    """The names of contexts by the facts of nodes: a name is a hash, and those of a whole fleet are asked for often."""

    def use(self, rule: ContextRule, known: Sequence[KnownContext]) -> None:
        """A release with this rule and these contexts is served from now on."""
        self.rule, self.known = rule, known
        self._names.clear()

    def find_name(self, node: Node) -> str:
        """The name of the context of a node."""
        facts = tuple(node.server_facts)
        if (name := self._names.get(facts)) is None:
            if len(self._names) >= MAX_NAMES:
                self._names.clear()
            name = self._names[facts] = self.rule.context_of(facts)
        return name

    def nearest(self, node: Node) -> Nearest | None:
        """The known context that is nearest to a node, which may be its own. Nothing learned there holds for it."""
        return nearest(self.rule.relevant(node.server_facts), self.known)

    def find_monitored_context(self, node: Node) -> str:
        """The context whose nodes may be compared with a node while it is monitored: its own, or the nearest known one
        that differs in no known cause."""
        near = self.nearest(node)
        if near is None or any(name in KNOWN_CAUSES for name in near.differs):
            return self.find_name(node)
        return near.context.context_id

    def list_untried(self, nodes: Sequence[Node]) -> list[Node]:
        """The nodes in contexts that no campaign has tried, and those in the nearest contexts, as their controls."""
        tried = {context.context_id for context in self.known}
        new = [node for node in nodes if self.find_name(node) not in tried]
        controls = {near.context.context_id for node in new if (near := self.nearest(node)) is not None}
        return [node for node in nodes if self.find_name(node) not in tried or self.find_name(node) in controls]
