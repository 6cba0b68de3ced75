"""Which context each node is in, now: what the rule of the release that is served makes of its facts."""

from __future__ import annotations

from dataclasses import dataclass

from pharoah_learning.context_rule import ALL_FACTS, ContextRule
from pharoah_provider.domain import Node


@dataclass
class Contexts:
    """The rule that is in force. Before the first release every set of facts is a context."""

    rule: ContextRule = ALL_FACTS

    def of(self, node: Node) -> str:
        """The name of the context of a node."""
        return self.rule.context_of(node.server_facts)

    def use(self, rule: ContextRule) -> None:
        """A release with this rule is served from now on."""
        self.rule = rule
