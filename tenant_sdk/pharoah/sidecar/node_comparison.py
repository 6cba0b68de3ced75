"""Compares the verdicts of a job's nodes. Pure functions."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pharoah._verdict import Finding, Verdict
from pharoah.findings.nodes_agree import NODES_AGREE
from pharoah.findings.nodes_differ import NODES_DIFFER
from pharoah_protocol.vocabulary import FindingSeverity, VerdictStatus

MAX_NAMES = 8
"""Names of nodes, or ranges of them, that one finding states."""
_ORDER = [VerdictStatus.COMPATIBLE, VerdictStatus.WARN, VerdictStatus.UNKNOWN, VerdictStatus.INCOMPATIBLE]
"""How the groups of nodes are listed."""
_SEVERITIES = [FindingSeverity.INFO, FindingSeverity.WARN, FindingSeverity.BLOCK]
_NUMBERED = re.compile(r"(.*?)(\d{1,9})(\D*)", re.DOTALL)


@dataclass(frozen=True)
class NodeVerdict:
    """The verdict of one node, in the words that other nodes need."""

    name: str
    """Name of the host."""
    status: VerdictStatus
    what: str = ""
    """The gravest thing that was found on the node, or why nothing is known."""
    evidence: str = ""
    remedy: str = ""


def node_verdict(name: str, verdict: Verdict) -> NodeVerdict:
    """What the other nodes learn of a node's verdict."""
    findings = [finding for finding in verdict.findings if finding.code not in (NODES_AGREE.code, NODES_DIFFER.code)]
    grave = max(findings, key=lambda finding: _SEVERITIES.index(finding.severity), default=None)
    if verdict.status in (VerdictStatus.COMPATIBLE, VerdictStatus.PENDING):
        return NodeVerdict(name, verdict.status)
    if grave is None or verdict.status == VerdictStatus.UNKNOWN:
        return NodeVerdict(name, verdict.status, verdict.reason)
    return NodeVerdict(name, verdict.status, grave.what, grave.evidence, grave.remedy)


def compare(verdicts: Mapping[int, NodeVerdict], nodes: int) -> Finding | None:
    """What the nodes' verdicts show together, by number of the node; None as long as they show nothing.

    `nodes` is how many the job has.
    """
    groups: dict[tuple[VerdictStatus, str], list[int]] = defaultdict(list)
    for number, one in sorted(verdicts.items()):
        groups[one.status, one.what].append(number)
    if len(groups) == 1 and len(verdicts) == nodes:
        return NODES_AGREE.create(count=nodes, status=next(iter(groups))[0])
    if len(groups) < 2:
        return None
    names = _names(verdicts)
    listed = sorted(groups, key=lambda group: (_ORDER.index(group[0]), -len(groups[group])))
    parts = [
        f"{status} on {ranges(names[number] for number in groups[status, what])}" + (f": {what}" if what else "")
        for status, what in listed
    ]
    worst = verdicts[groups[listed[-1]][0]]
    severity = {VerdictStatus.INCOMPATIBLE: FindingSeverity.BLOCK, VerdictStatus.WARN: FindingSeverity.WARN}
    return NODES_DIFFER.create(
        severity=severity.get(worst.status, FindingSeverity.INFO),
        groups="; ".join(parts),
        evidence=worst.evidence,
        remedy=worst.remedy,
    )


def _names(verdicts: Mapping[int, NodeVerdict]) -> dict[int, str]:
    """Names of the nodes by number. Containers may have one name on several nodes; their numbers name them."""
    hosts = Counter(one.name for one in verdicts.values())
    return {number: one.name if hosts[one.name] == 1 else f"node {number}" for number, one in verdicts.items()}


def ranges(names: Iterable[str]) -> str:
    """Names with consecutive numbers as ranges: `n1-n7, n9`."""
    runs: list[tuple[str, str]] = []
    for name in sorted(names, key=_sort_key):
        if runs and _follows(runs[-1][1], name):
            runs[-1] = (runs[-1][0], name)
        else:
            runs.append((name, name))
    shown = [first if first == last else f"{first}-{last}" for first, last in runs]
    if len(shown) > MAX_NAMES:
        shown = [*shown[:MAX_NAMES], f"and {len(shown) - MAX_NAMES} more"]
    return ", ".join(shown)


def _follows(before: str, name: str) -> bool:
    first, second = _NUMBERED.fullmatch(before), _NUMBERED.fullmatch(name)
    if not first or not second:
        return False
    same = (first[1], first[3]) == (second[1], second[3])
    return same and second[2] == str(int(first[2]) + 1).zfill(len(first[2]))


def _sort_key(name: str) -> tuple[str, int, str]:
    match = _NUMBERED.fullmatch(name)
    return (match[1], int(match[2]), match[3]) if match else (name, -1, "")
