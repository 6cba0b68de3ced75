-- name: put_run
INSERT INTO runs (
    run_id, attempt, job_id, tenant, node, ranks, beside_job, limit_seconds, joined_at
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: end_earlier_attempts
UPDATE runs SET ended_at = ?, end_state = ? WHERE run_id = ? AND ended_at IS NULL

-- name: run
SELECT * FROM runs WHERE run_id = ? ORDER BY attempt DESC LIMIT 1

-- name: active_runs
SELECT * FROM runs WHERE ended_at IS NULL ORDER BY joined_at

-- name: end_state
SELECT end_state FROM runs WHERE run_id = ? AND attempt = ?

-- name: end_run
UPDATE runs SET ended_at = ?, end_state = ?, attribution = ?
WHERE run_id = ? AND attempt = ? AND ended_at IS NULL

-- name: take_ticket
INSERT OR IGNORE INTO tickets (nonce, run_id, taken_at) VALUES (?, ?, ?)

-- name: ticket_holder
SELECT run_id FROM tickets WHERE nonce = ?
