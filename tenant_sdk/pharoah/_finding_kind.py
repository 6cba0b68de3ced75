"""Kinds of findings: each has a code that scripts can rely on, and a text in which the values of one case are put.

Our kinds are the modules of `pharoah.findings`, one each. Other distributions add theirs in the entry-point group
`pharoah.findings`. `findings_table` is the table of docs/tenant/verdicts.md.
"""

from __future__ import annotations

import string
from collections.abc import Iterator
from dataclasses import dataclass

from pharoah._verdict import Finding
from pharoah_protocol.registry import Registry
from pharoah_protocol.vocabulary import FindingSeverity

GROUP = "pharoah.findings"
_CODE_LETTERS = set(string.ascii_lowercase + string.digits + "-")


@dataclass(frozen=True)
class FindingKind:
    """One kind of finding. Raises ValueError for a code that cannot be one."""

    code: str
    """Lower-case words with hyphens. It is stored in verdicts and never changes its meaning."""
    severity: FindingSeverity
    """The usual one; a producer may give another."""
    text: str
    """A format string; names in braces are values of the case."""
    help: str
    """What it means and what to do, for somebody who reads the code in a log."""

    def __post_init__(self) -> None:
        if not self.code or set(self.code) - _CODE_LETTERS:
            raise ValueError(f"finding code {self.code!r}: write lower-case letters, digits and hyphens")

    @property
    def name(self) -> str:
        return self.code

    def create(
        self,
        *,
        severity: FindingSeverity | None = None,
        evidence: str = "",
        remedy: str = "",
        rung: str = "",
        **values: object,
    ) -> Finding:
        """A finding of this kind. `values` are those of the text; raises KeyError when one is missing."""
        return Finding(severity or self.severity, self.text.format(**values), evidence, remedy, rung, code=self.code)


def finding_kinds() -> Registry[FindingKind]:
    """All kinds, ours and those of other distributions. Raises RegistryError when it is read."""
    return Registry(FindingKind, "pharoah.findings", GROUP)


def findings_table() -> str:
    """All kinds as a table in Markdown."""
    return "\n".join(_rows())


def _rows() -> Iterator[str]:
    yield "| code | severity | text | meaning |"
    yield "|---|---|---|---|"
    for kind in finding_kinds():
        yield f"| `{kind.code}` | {kind.severity} | {kind.text} | {kind.help} |"
