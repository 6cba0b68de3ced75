-- name: put_alert
INSERT OR REPLACE INTO alerts (
    alert_id, run_id, node, state, fault_domain, what, evidence, since, changed_at, step_ratio
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: open_alerts
SELECT * FROM alerts WHERE state IN ('suspected', 'confirmed')
