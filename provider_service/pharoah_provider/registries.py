"""Everything that grows by one file, as tables: what `pharoah-provider registries` and docs/registries.md show."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pharoah._finding_kind import GROUP as FINDINGS
from pharoah._finding_kind import finding_kinds
from pharoah.dryrun.extensions import GROUP as EXTENSIONS
from pharoah.dryrun.extensions import extensions
from pharoah.end_causes import GROUP as END_CAUSES
from pharoah.end_causes import end_causes
from pharoah.launchers import GROUP as LAUNCHERS
from pharoah.launchers import launchers
from pharoah.local_alerts import GROUP as DETECTORS
from pharoah.local_alerts import detectors
from pharoah_benchmarks.faults import FAULTS
from pharoah_benchmarks.faults import GROUP as FAULT_GROUP
from pharoah_benchmarks.micro import GROUP as MICRO
from pharoah_benchmarks.micro import MICRO_BENCHMARKS
from pharoah_benchmarks.strategies import GROUP as STRATEGY_GROUP
from pharoah_benchmarks.strategies import STRATEGIES
from pharoah_learning.signals import GROUP as RUN_SIGNALS
from pharoah_learning.signals import SIGNALS
from pharoah_protocol.incident_states import GROUP as STATES
from pharoah_protocol.incident_states import INCIDENT_STATES
from pharoah_protocol.registry import Registry
from pharoah_provider.agent.facts import FACT_GROUPS
from pharoah_provider.agent.facts import GROUP as FACTS
from pharoah_provider.agent.signals import AGENT_SIGNALS
from pharoah_provider.agent.signals import GROUP as NODE_SIGNALS
from pharoah_provider.backfill import GROUP as BACKFILL_GROUP
from pharoah_provider.backfill import SOURCES
from pharoah_provider.campaigns.executors import EXECUTORS
from pharoah_provider.campaigns.executors import GROUP as EXECUTOR_GROUP
from pharoah_provider.listings import GROUP as LISTING_GROUP
from pharoah_provider.listings import LISTINGS
from pharoah_provider.schedulers import GROUP as SCHEDULER_GROUP
from pharoah_provider.schedulers import SCHEDULERS


@dataclass(frozen=True, kw_only=True)
class Overview:
    """One registry and the columns of its table."""

    name: str
    group: str
    """The entry-point group of other distributions."""
    package: str
    """The package with one module for each of our own entries."""
    entries: Registry[Any]
    columns: Mapping[str, Callable[[Any], object]]
    """Column to the value of one entry."""

    def rows(self) -> Iterator[dict[str, str]]:
        """One row per entry, as text."""
        for entry in self.entries:
            yield {column: str(value(entry)) for column, value in self.columns.items()}


OVERVIEWS = (
    Overview(
        name="micro-benchmarks",
        group=MICRO,
        package="pharoah_benchmarks.micro",
        entries=MICRO_BENCHMARKS,
        columns={
            "name": lambda entry: entry.name,
            "measures": lambda entry: entry.measures,
            "resource": lambda entry: entry.resource,
            "device": lambda entry: entry.device,
            "dtype": lambda entry: entry.dtype,
            "size": lambda entry: entry.size,
            "placement": lambda entry: entry.placement,
            "runs": lambda entry: "in every round" if entry.selected else "by name",
            "duty": lambda entry: entry.duty,
            "needs": lambda entry: entry.need or "nothing",
            "noise": lambda entry: entry.noise.log_ratio_sd,
            "seconds": lambda entry: entry.limit_seconds,
            "by sidecars": lambda entry: "yes" if entry.suits_guests else "no",
        },
    ),
    Overview(
        name="strategies",
        group=STRATEGY_GROUP,
        package="pharoah_benchmarks.strategies",
        entries=STRATEGIES,
        columns={
            "name": lambda entry: entry.name,
            "help": lambda entry: entry.help,
            "least_ranks": lambda entry: entry.least_ranks,
        },
    ),
    Overview(
        name="faults",
        group=FAULT_GROUP,
        package="pharoah_benchmarks.faults",
        entries=FAULTS,
        columns={
            "name": lambda entry: entry.name,
            "help": lambda entry: entry.help,
            "resource": lambda entry: entry.resource,
            "dose": lambda entry: f"{entry.dose.least:g} to {entry.dose.most:g} {entry.dose.unit}",
            "ranks": lambda entry: entry.least_ranks,
            "device": lambda entry: entry.device or "any",
            "needs": lambda entry: entry.needs or "nothing",
        },
    ),
    Overview(
        name="executors",
        group=EXECUTOR_GROUP,
        package="pharoah_provider.campaigns.executors",
        entries=EXECUTORS,
        columns={
            "name": lambda entry: entry.name,
            "runs cells in": lambda entry: entry.help,
            "options": lambda entry: ", ".join(entry.options),
            "contexts": lambda entry: "yes" if entry.has_contexts else "no",
        },
    ),
    Overview(
        name="extensions",
        group=EXTENSIONS,
        package="pharoah.dryrun.extensions",
        entries=extensions(),
        columns={
            "name": lambda entry: entry.name,
            "help": lambda entry: entry.help,
            "distribution": lambda entry: entry.distribution,
            "version": lambda entry: entry.version,
        },
    ),
    Overview(
        name="signals",
        group=RUN_SIGNALS,
        package="pharoah_learning.signals",
        entries=SIGNALS,
        columns={
            "name": lambda entry: entry.name,
            "measures": lambda entry: entry.measures,
            "worse": lambda entry: entry.worse,
            "features": lambda entry: ", ".join(feature.name for feature in entry.features),
        },
    ),
    Overview(
        name="node-signals",
        group=NODE_SIGNALS,
        package="pharoah_provider.agent.signals",
        entries=AGENT_SIGNALS,
        columns={
            "name": lambda entry: entry.name,
            "measures": lambda entry: entry.measures,
            "unit": lambda entry: entry.unit,
            "resource": lambda entry: entry.resource,
            "worse": lambda entry: entry.worse.value,
            "kind": lambda entry: entry.kind.value,
            "leaves the node": lambda entry: "yes" if entry.leaves_node else "no",
        },
    ),
    Overview(
        name="facts",
        group=FACTS,
        package="pharoah_provider.agent.facts",
        entries=FACT_GROUPS,
        columns={
            "name": lambda entry: entry.name,
            "reads": lambda entry: entry.help,
            "facts": lambda entry: ", ".join(entry.facts),
        },
    ),
    Overview(
        name="incident-states",
        group=STATES,
        package="pharoah_protocol.incident_states",
        entries=INCIDENT_STATES,
        columns={
            "name": lambda entry: entry.name,
            "meaning": lambda entry: entry.help,
            "code": lambda entry: entry.code,
            "open": lambda entry: "yes" if entry.is_open else "no",
            "reported": lambda entry: "yes" if entry.is_reported else "no",
        },
    ),
    Overview(
        name="listings",
        group=LISTING_GROUP,
        package="pharoah_provider.listings",
        entries=LISTINGS,
        columns={"name": lambda entry: entry.name, "lists": lambda entry: entry.help},
    ),
    Overview(
        name="schedulers",
        group=SCHEDULER_GROUP,
        package="pharoah_provider.schedulers",
        entries=SCHEDULERS,
        columns={"name": lambda entry: entry.name, "does": lambda entry: entry.help},
    ),
    Overview(
        name="findings",
        group=FINDINGS,
        package="pharoah.findings",
        entries=finding_kinds(),
        columns={
            "name": lambda entry: entry.code,
            "meaning": lambda entry: entry.help,
            "severity": lambda entry: entry.severity,
            "text": lambda entry: entry.text,
        },
    ),
    Overview(
        name="end-causes",
        group=END_CAUSES,
        package="pharoah.end_causes",
        entries=end_causes(),
        columns={
            "name": lambda entry: entry.name,
            "recognises": lambda entry: entry.help,
            "order": lambda entry: entry.order,
        },
    ),
    Overview(
        name="detectors",
        group=DETECTORS,
        package="pharoah.local_alerts",
        entries=detectors(),
        columns={"name": lambda entry: entry.name, "finds": lambda entry: entry.help},
    ),
    Overview(
        name="launchers",
        group=LAUNCHERS,
        package="pharoah.launchers",
        entries=launchers(),
        columns={
            "name": lambda entry: entry.name,
            "programs": lambda entry: ", ".join(entry.programs),
            "starts": lambda entry: entry.help,
        },
    ),
    Overview(
        name="backfill",
        group=BACKFILL_GROUP,
        package="pharoah_provider.backfill",
        entries=SOURCES,
        columns={
            "name": lambda entry: entry.name,
            "reads": lambda entry: entry.help,
            "map": lambda entry: "its own" if entry.map else "needed",
        },
    ),
)


def markdown() -> str:
    """The page docs/registries.md."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield "# Registries"
    yield ""
    yield "`pharoah-provider registries --markdown` writes this page. Each table is a set that grows by one file:"
    yield "a module in our package, or an entry point in any other distribution."
    yield "[CONTRIBUTING.md](../CONTRIBUTING.md) has a how-to for each."
    for overview in OVERVIEWS:
        yield f"\n## {overview.name}\n"
        yield f"Package `{overview.package}`, entry-point group `{overview.group}`.\n"
        yield f"| {' | '.join(overview.columns)} |"
        yield "|---" * len(overview.columns) + "|"
        for row in overview.rows():
            yield f"| {' | '.join(row.values())} |"
