"""Which environments cannot differ for a workload, because they execute the same code.

The provider's own dry runs record the code (`dry_cell`), so no agent's word decides it. Two environments are the same
for a workload and its other settings where the same functions ran in all packages that are known or installed there,
with the same values that these functions read (`pharoah.dryrun.executed_code`), and the fingerprints agree in all but
the versions. A cell that cannot be dry-run is the same as no other.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping

from pharoah_archetypes import Fingerprint
from pharoah_benchmarks.campaign.cell import Cell
from pharoah_protocol.vocabulary import ENVIRONMENT


def same_code(cells: Iterable[Cell], fingerprints: Mapping[str, Fingerprint]) -> dict[str, str]:
    """`Cell.content` of each cell that need not run, and the environment that runs in its place: the first one.

    `fingerprints`: of the cells, by `Cell.content`."""
    groups: dict[str, dict[str, str]] = defaultdict(dict)
    for cell in cells:
        fingerprint = fingerprints.get(cell.content)
        if cell.environment and fingerprint is not None and fingerprint.code:
            groups[_key(cell, fingerprint)].setdefault(cell.environment, cell.content)
    return {content: next(iter(group)) for group in groups.values() for content in list(group.values())[1:]}


def _key(cell: Cell, fingerprint: Fingerprint) -> str:
    """Equal for cells that execute the same code. Digests compare within one minor version of Python."""
    settings = {name: value for name, value in cell.settings.items() if name != ENVIRONMENT}
    python = fingerprint.versions.get("python", "").rpartition(".")[0]
    structure = (fingerprint.archetype, fingerprint.features, fingerprint.sizes)
    return json.dumps([cell.workload, settings, python, fingerprint.code, structure], sort_keys=True)
