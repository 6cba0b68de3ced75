-- name: put_run
INSERT INTO runs (
    run_id, attempt, job_id, tenant, node, ranks, beside_job, limit_seconds, joined_at, probe_key, seen_gone,
    server_facts
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, FALSE, coalesce((SELECT server_facts FROM nodes WHERE node = ?), []))

-- name: end_earlier_attempts
UPDATE runs SET ended_at = ?, end_state = ? WHERE run_id = ? AND ended_at IS NULL

-- name: run
SELECT * FROM runs WHERE run_id = ? ORDER BY attempt DESC LIMIT 1

-- name: active_runs
SELECT * FROM runs WHERE ended_at IS NULL ORDER BY joined_at

-- name: lost_runs
SELECT * FROM runs AS r
WHERE end_state = 'lost' AND NOT seen_gone
    AND attempt = (SELECT max(attempt) FROM runs AS later WHERE later.run_id = r.run_id)

-- name: put_seen_empty
UPDATE runs SET seen_gone = TRUE WHERE node = ? AND end_state = 'lost' AND NOT seen_gone

-- name: end_state
SELECT end_state FROM runs WHERE run_id = ? AND attempt = ?

-- name: end_run
-- A run that was declared lost ended then, but how it ended only its sidecar knows, which may say so later.
UPDATE runs SET ended_at = coalesce(ended_at, ?), end_state = ?, attribution = ?
WHERE run_id = ? AND attempt = ? AND (ended_at IS NULL OR end_state = 'lost')

-- name: take_ticket
INSERT OR IGNORE INTO tickets (nonce, run_id, taken_at) VALUES (?, ?, ?)

-- name: ticket_holder
SELECT run_id FROM tickets WHERE nonce = ?

-- name: reported_since
-- A span that began before then counts with the seconds since then alone.
SELECT runs.tenant, sum(spans.seconds) AS rank_seconds, count(*) AS row_count
FROM (
    SELECT run_id, attempt, least(last_second - first_second + 1, ceil(ended_at - $since)) AS seconds
    FROM (
        SELECT run_id, attempt, first_second, last_second, ended_at FROM report_spans
        UNION ALL SELECT run_id, attempt, first_second, last_second, ended_at FROM open_report_spans
    )
    WHERE ended_at >= $since
) AS spans JOIN runs USING (run_id, attempt)
GROUP BY runs.tenant
