-- name: append_cell
INSERT INTO cells (
    campaign, cell, node, context_id, device_id, workload, settings, degradation, outcome, detail, step_seconds,
    windows, fingerprint, context, ran_at, device, context_device, result_id,
    block, losses, seed, facts, dose, onset_seconds, telemetry
) VALUES (
    ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?::DOUBLE[], ?, ?, ?, ?, ?, ?, ?, ?, ?::DOUBLE[], ?, ?::VARCHAR[], ?, ?, ?
)

-- name: trials
SELECT * FROM cells WHERE degradation = '' AND ran_at <= ? ORDER BY ran_at

-- name: trials_after
SELECT node FROM cells WHERE degradation = '' AND ran_at > ?

-- name: degraded_runs
SELECT degradation, windows, outcome, node, result_id, ran_at, dose, onset_seconds, telemetry, fingerprint
FROM cells WHERE degradation != '' ORDER BY ran_at

-- name: own_fingerprints
SELECT workload, settings, fingerprint FROM own_fingerprints
WHERE fingerprint != '' AND made_at <= ? ORDER BY made_at

-- name: count_evidence_of_node
SELECT (SELECT count(*) FROM cells WHERE node = $name)
     + (SELECT count(*) FROM probes WHERE node = $name AND purpose = 'baseline') AS found

-- name: count_evidence_of_cell
SELECT count(*) AS found FROM cells WHERE result_id = $name

-- name: baseline_probes
SELECT *, ended_at AS ran_at FROM probes WHERE purpose = ? AND error = '' ORDER BY started_at

-- name: put_outcome_report
INSERT OR IGNORE INTO outcome_reports (run_id, period, name, organisation, context_id, failed, reported_at, facts)
VALUES (?, ?, ?, ?, ?, ?, ?, ?::VARCHAR[])

-- name: outcome_reports
SELECT * FROM outcome_reports WHERE period = ? ORDER BY reported_at
