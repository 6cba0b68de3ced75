-- Each name begins with a table of `storage.retention`; a second statement of a table follows a dot.

-- name: telemetry
DELETE FROM telemetry_spans WHERE last_at < ?

-- name: telemetry.open
DELETE FROM open_telemetry_spans WHERE last_at < ?

-- name: reports
DELETE FROM report_spans WHERE ended_at < ?

-- name: reports.open
DELETE FROM open_report_spans WHERE ended_at < ?

-- name: probes
-- The newest checks are what an idle node is compared with, also one that has been slow for longer than the retention:
-- `fleet_comparison.PAST_RUNS` and one more.
DELETE FROM probes WHERE purpose != 'baseline' AND ended_at < ? AND rowid NOT IN (
    SELECT rowid FROM probes WHERE purpose = 'check' AND NOT beside_job AND error = ''
    QUALIFY row_number() OVER (PARTITION BY node, benchmark ORDER BY ended_at DESC) <= 6
)

-- name: orders
DELETE FROM benchmark_orders WHERE ended_at < ?

-- name: tickets
DELETE FROM tickets WHERE taken_at < ?

-- name: outcomes
DELETE FROM outcome_reports WHERE reported_at < ?

-- name: revealed
DELETE FROM revealed_jobs WHERE revealed_at < ?

-- name: runs
DELETE FROM runs WHERE ended_at < ?

-- name: suspicions
DELETE FROM incidents WHERE state = 'dismissed' AND changed_at < ?

-- name: suspicions.changes
DELETE FROM incident_transitions
WHERE changed_at < ? AND incident_id NOT IN (SELECT incident_id FROM incidents)

-- name: idle_checks
DELETE FROM idle_checks WHERE checked_at < ?
