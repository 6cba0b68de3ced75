"""What operators list: one query each, its columns ready for people and for JSON."""

from __future__ import annotations

LISTINGS = {
    "outcomes": """
        SELECT name[:16] AS name, period, context_id AS context, count(DISTINCT organisation) AS organisations,
               count(*) AS runs, sum(failed::INT)::INT AS failed
        FROM votes GROUP BY ALL ORDER BY period DESC, failed DESC, name""",
    "revealed": """
        SELECT lower(hex(v.run_id))[:8] AS run, v.tenant, v.context_id AS context, r.end_state,
               v.fingerprint ->> '$.archetype' AS archetype, v.fingerprint
        FROM revealed v JOIN runs r USING (run_id)
        QUALIFY row_number() OVER (PARTITION BY run_id ORDER BY r.attempt DESC) = 1 ORDER BY v.told_at""",
    "nodes": """
        SELECT n.node, n.context_id AS context, n.server_facts AS facts,
               n.last_seen,
               (SELECT count(*) FROM runs r WHERE r.node = n.node AND r.ended_at IS NULL) AS runs,
               (SELECT count(*) FROM incidents i WHERE i.resource_kind = 'node' AND i.resource = n.node
                AND i.state = 'confirmed') AS alerts
        FROM nodes n ORDER BY n.node""",
    "alerts": """
        SELECT incident_id AS alert_id, resource AS node, kind, state, fault_domain, what, evidence, since, changed_at,
               step_ratio, lower(hex(raised_by))[:8] AS run
        FROM incidents ORDER BY since""",
    "runs": """
        SELECT lower(hex(run_id))[:8] AS run, lower(hex(job_id))[:8] AS job, * EXCLUDE (run_id, job_id)
        FROM runs ORDER BY joined_at, attempt""",
    "probes": """
        SELECT node, benchmark, purpose, beside_job, started_at, ended_at, list_avg(seconds) AS mean_seconds,
               len(seconds) AS repeats, error
        FROM probes ORDER BY started_at""",
    "cells": """
        SELECT campaign, cell, node, context_id AS context, workload, settings, degradation, outcome, detail,
               list_median(step_seconds[2:]) AS step_seconds FROM cells ORDER BY ran_at""",
    "reports": """
        SELECT * FROM (
            SELECT lower(hex(run_id))[:8] AS run, rank, started_at, ended_at, last_second - first_second + 1 AS seconds,
                   signals['step_ratio'] AS step_ratio, signals['memory_ratio'] AS memory_ratio, masked, risk
            FROM (SELECT * FROM report_spans UNION ALL BY NAME SELECT * FROM open_report_spans)
            ORDER BY ended_at DESC, started_at DESC LIMIT 100000)
        ORDER BY ended_at, started_at""",
}  # fmt: skip
