-- name: append_cell
INSERT INTO cells (
    campaign, cell, node, context_id, device_id, workload, settings, degradation, outcome, detail, step_seconds,
    windows, fingerprint, context, ran_at
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?::DOUBLE[], ?, ?, ?, ?)

-- name: trials
SELECT * FROM cells WHERE degradation = '' AND fingerprint != '' AND ran_at <= ? ORDER BY ran_at

-- name: degraded_runs
SELECT degradation, windows, outcome FROM cells WHERE degradation != ''

-- name: baseline_probes
SELECT * FROM probes WHERE purpose = ? AND error = '' ORDER BY started_at

-- name: put_outcome_report
INSERT OR IGNORE INTO outcome_reports (run_id, period, name, organisation, context_id, failed, reported_at)
VALUES (?, ?, ?, ?, ?, ?, ?)

-- name: outcome_reports
SELECT * FROM outcome_reports WHERE period = ? ORDER BY reported_at

-- name: put_revealed
INSERT OR REPLACE INTO revealed_jobs (run_id, tenant, context_id, fingerprint, revealed_at) VALUES (?, ?, ?, ?, ?)
