"""The provider's own fingerprints of the cells that a campaign orders (ADR 21).

A fingerprint is a function of workload and settings, which the campaign file states. So the provider dry-runs each cell
itself, on its own machine, in the environment of the cell, and no agent decides which job a cell was. The process that
does it needs torch; it runs beside the campaign at a low priority, and ends with it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from importlib.metadata import PackageNotFoundError, version

from pharoah_archetypes import Fingerprint
from pharoah_benchmarks.campaign.cell import Cell, DryCell
from pharoah_benchmarks.environments import BuildError
from pharoah_learning.context_rule import identity
from pharoah_protocol import __version__
from pharoah_protocol.node_profile import NodeProfile
from pharoah_provider.agent.child_processes import ChildDied
from pharoah_provider.agent.environment_children import EnvironmentChildren
from pharoah_provider.storage.base import DryRunStore

log = logging.getLogger("pharoah.provider.campaigns")

DRY_RUN_SECONDS = 120.0
"""How long one dry run may take: a minute in its own process (`dry_cell.DRY_RUN_SECONDS`), and as long again to start,
because all cores are busy with cells."""


class OwnFingerprints:
    """Dry-runs cells for each release of the software; what it finds is stored."""

    def __init__(self, dry_runs: DryRunStore) -> None:
        self._dry_runs = dry_runs
        self.software = identity([f"torch={_torch_version()}", f"pharoah={__version__}"])
        """Names the release of torch and Pharoah with which cells are dry-run here."""
        self._tried = set[str]()
        """`Cell.content` of the cells that this campaign has dry-run."""

    async def complete(self, cells: Iterable[Cell]) -> None:
        """Dry-run what has no fingerprint yet. A dry run that gives none is stored with the reason; the next campaign
        tries the cell again, a few times in all, because the machine may only have been busy."""
        missing = await self._dry_runs.missing(
            [cell for cell in cells if cell.content not in self._tried], self.software
        )
        self._tried |= {cell.content for cell in missing}
        if not missing:
            return
        missing.sort(key=lambda cell: (cell.environment, cell.lock))  # a child does all its cells, then the next one
        async with EnvironmentChildren("pharoah_benchmarks.campaign.dry_cell", NodeProfile(threads=1)) as children:
            for cell in missing:
                try:
                    answer = await children.ask(cell.environment, cell.to_json(), DRY_RUN_SECONDS, cell.lock)
                    dry = DryCell.from_json(answer)
                except (BuildError, ChildDied, OSError, ValueError, KeyError, TypeError) as error:
                    # Nothing is known of the cell: the next campaign tries again.
                    log.warning("cell %s was not dry-run: %s: %s", cell.id, type(error).__name__, error)
                    continue
                if dry.may_be_tried_again:
                    log.warning("cell %s was not dry-run: %s", cell.id, dry.reason)
                    continue
                if dry.reason:
                    log.warning("cell %s cannot be dry-run here: %s", cell.id, dry.reason)
                await self._dry_runs.put(cell, self.software, dry)

    async def find(self, cells: Sequence[Cell]) -> dict[str, Fingerprint]:
        """`Cell.content` to the fingerprint of the cell, where its dry run gave one."""
        texts = await self._dry_runs.fingerprints(cells, self.software)
        return {content: Fingerprint.from_json(text) for content, text in texts.items()}


def _torch_version() -> str:
    """The torch that is installed here; without one, no cell can be dry-run."""
    try:
        return version("torch")
    except PackageNotFoundError:
        return "none"
