"""What the provider keeps, by subject. Tables and columns are known here, in `published` and `listings` alone."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any

from pharoah_benchmarks.campaign.cell import Cell, Outcome
from pharoah_learning.evidence import BenchmarkResult, DegradedRun, OutcomeReport, Trial
from pharoah_provider.domain import Node, Report, Run
from pharoah_provider.store.listings import LISTINGS
from pharoah_provider.store.published import Published


class Store(Published):
    """Reads and writes in domain types. Writes return once committed; raises StoreError."""

    def close(self) -> None:
        self._db.close()

    # nodes and telemetry

    async def put_node(self, node: Node) -> None:
        await self._db.execute(
            "INSERT OR REPLACE INTO nodes VALUES (?,?,?,?,?,?,?,?,?,?)",
            [node.node, node.ticket_key, node.boot_id, node.context_id, node.device_id, list(node.server_facts),
             list(node.device_facts), list(node.cpus), node.version, time.time()],
        )  # fmt: skip

    async def node(self, name: str) -> Node | None:
        rows = await self._db.read("SELECT * FROM nodes WHERE node = ?", [name])
        return _node(rows[0]) if rows else None

    async def nodes(self) -> list[Node]:
        return [_node(row) for row in await self._db.read("SELECT * FROM nodes ORDER BY node")]

    async def append_telemetry(
        self,
        node: str,
        at: Sequence[float],
        metric: Sequence[str],
        device: Sequence[str],
        value: Sequence[float],
    ) -> None:
        columns = {
            "node": [node] * len(at),
            "sampled_at": at,
            "metric": metric,
            "device": device,
            "value": value,
        }
        await self._db.append("telemetry", columns)

    # runs

    async def take_ticket(self, nonce: str, run_id: bytes) -> bool:
        """Whether the ticket is this run's: nobody has taken it before."""
        await self._db.execute("INSERT OR IGNORE INTO tickets VALUES (?,?)", [nonce, run_id])
        rows = await self._db.read("SELECT run_id FROM tickets WHERE nonce = ?", [nonce])
        return bytes(rows[0]["run_id"]) == run_id

    async def append_reports(
        self, run: Run, reports: Sequence[Report], masked: Sequence[bool], risk: Sequence[float]
    ) -> None:
        columns: dict[str, Sequence[Any]] = {
            "run_id": [run.run_id] * len(reports),
            "attempt": [run.attempt] * len(reports),
            "masked": masked,
            "risk": risk,
        }
        for name in ("row_number", "rank", "ended_at", "span_seconds", "step_ratio", "memory_ratio"):
            columns[name] = [getattr(report, name) for report in reports]
        await self._db.append("reports", columns)

    # what tenants tell

    async def put_vote(self, vote: OutcomeReport) -> None:
        """The first word about a run stands."""
        values = [vote.run_id, vote.period, vote.name, vote.organisation, vote.context_id, vote.failed, time.time()]
        await self._db.execute("INSERT OR IGNORE INTO votes VALUES (?,?,?,?,?,?,?)", values)

    async def votes(self, period: int) -> list[OutcomeReport]:
        rows = await self._db.read("SELECT * FROM votes WHERE period = ? ORDER BY told_at", [period])
        names = ("period", "name", "organisation", "context_id", "failed")
        return [OutcomeReport(bytes(row["run_id"]), **{name: row[name] for name in names}) for row in rows]

    async def put_revealed(self, run: Run, context_id: str, fingerprint: str) -> None:
        values = [run.run_id, run.tenant, context_id, fingerprint, time.time()]
        await self._db.execute("INSERT OR REPLACE INTO revealed VALUES (?,?,?,?,?)", values)

    # benchmarks and campaigns

    async def append_probes(self, probes: Sequence[BenchmarkResult], purpose: str) -> None:
        names = ("order_id", "node", "benchmark", "beside_job", "started_at", "ended_at", "error")
        columns: dict[str, Sequence[Any]] = {name: [getattr(p, name) for p in probes] for name in names}
        await self._db.append(
            "probes",
            {**columns, "seconds": [list(p.seconds) for p in probes], "purpose": [purpose] * len(probes)},
        )

    async def baseline_probes(self) -> list[BenchmarkResult]:
        rows = await self._db.read("SELECT * FROM probes WHERE purpose = 'baseline' AND error = '' ORDER BY started_at")
        names = ("order_id", "node", "benchmark", "beside_job", "started_at", "ended_at")
        return [BenchmarkResult(**{name: row[name] for name in names}, seconds=tuple(row["seconds"])) for row in rows]

    async def append_cell(self, campaign: str, node: Node, cell: Cell, outcome: Outcome) -> None:
        row: dict[str, Any] = {
            "campaign": campaign,
            "cell": cell.id,
            "node": node.node,
            "context_id": node.context_id,
            "device_id": node.device_id,
            "workload": cell.workload,
            "settings": json.dumps(cell.settings, sort_keys=True),
            "degradation": cell.degradation.kind if cell.degradation else "",
            "outcome": outcome.outcome,
            "detail": outcome.detail,
            "step_seconds": outcome.step_seconds,
            "windows": json.dumps(outcome.rows),
            "fingerprint": outcome.fingerprint,
            "context": json.dumps(outcome.context),
            "ran_at": time.time(),
        }
        # A list column must have a type even when this cell measured nothing.
        row["step_seconds"] = [float(s) for s in outcome.step_seconds] or [float("nan")]
        await self._db.append("cells", {name: [value] for name, value in row.items()})

    async def trials(self, before: float = float("inf")) -> list[Trial]:
        """Trials that ran before then (unix seconds), in the order in which they ran."""
        rows = await self._db.read(
            "SELECT * FROM cells WHERE degradation = '' AND fingerprint != '' AND ran_at <= ? ORDER BY ran_at", [before]
        )
        return [
            Trial(
                r["workload"],
                json.loads(r["settings"]),
                r["context_id"],
                r["device_id"],
                r["outcome"],
                tuple(s for s in r["step_seconds"] if s == s),
                r["fingerprint"],
            )
            for r in rows
        ]

    async def degraded_runs(self) -> list[DegradedRun]:
        rows = await self._db.read("SELECT degradation, windows, outcome FROM cells WHERE degradation != ''")
        return [
            DegradedRun(
                r["degradation"],
                tuple((float(t), float(s), float(m)) for t, s, m in json.loads(r["windows"])),
                r["outcome"] in ("memory", "crash"),
            )
            for r in rows
        ]

    # listings for people

    async def listing(self, name: str) -> list[dict[str, Any]]:
        """Rows of one of LISTINGS, ready for JSON."""
        return await self._db.read(LISTINGS[name])


def _node(row: dict[str, Any]) -> Node:
    return Node(
        row["node"],
        bytes(row["ticket_key"]),
        row["boot_id"],
        tuple(row["server_facts"]),
        tuple(row["device_facts"]),
        tuple(row["cpus"]),
        row["version"],
    )
