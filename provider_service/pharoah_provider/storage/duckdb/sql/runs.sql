-- name: put_run
INSERT OR REPLACE INTO runs (
    run_id, tenant, node, attempt, ranks, beside_job, limit_seconds, joined_at, ended_at, end_state
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, NULL, NULL)

-- name: run
SELECT * FROM runs WHERE run_id = ?

-- name: active_runs
SELECT * FROM runs WHERE ended_at IS NULL

-- name: end_state
SELECT end_state FROM runs WHERE run_id = ?

-- name: end_run
UPDATE runs SET ended_at = ?, end_state = ? WHERE run_id = ? AND ended_at IS NULL

-- name: take_ticket
INSERT OR IGNORE INTO tickets (nonce, run_id, taken_at) VALUES (?, ?, ?)

-- name: ticket_holder
SELECT run_id FROM tickets WHERE nonce = ?
