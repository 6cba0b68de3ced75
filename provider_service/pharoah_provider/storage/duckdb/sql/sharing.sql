-- name: count_evaluation
INSERT INTO pseudonym_evaluations (organisation, period, evaluated) VALUES (?, ?, 1)
ON CONFLICT (organisation, period) DO UPDATE SET evaluated = evaluated + 1

-- name: evaluations
SELECT evaluated FROM pseudonym_evaluations WHERE organisation = ? AND period = ?

-- name: names
SELECT DISTINCT name FROM outcome_reports WHERE organisation = ? AND period = ?

-- name: reported_seconds
SELECT coalesce(max(seconds), 0) AS seconds FROM (
    SELECT attempt, sum(last_second - first_second + 1) AS seconds FROM (
        SELECT attempt, first_second, last_second FROM report_spans
        WHERE run_id = $run_id AND rank = 0 AND ended_at >= $since
        UNION ALL
        SELECT attempt, first_second, last_second FROM open_report_spans WHERE run_id = $run_id AND rank = 0
    ) GROUP BY attempt
)

-- name: revealed_runs
SELECT r.tenant, r.node, v.fingerprint, r.server_facts, r.ranks, r.end_state, r.attribution, r.ended_at AS ran_at
FROM revealed_jobs AS v JOIN runs AS r USING (run_id)
WHERE v.revealed_at <= ? AND r.ended_at IS NOT NULL
QUALIFY row_number() OVER (PARTITION BY run_id ORDER BY r.attempt DESC) = 1 ORDER BY v.revealed_at, run_id

-- name: put_revealed
INSERT OR REPLACE INTO revealed_jobs (run_id, tenant, context_id, fingerprint, revealed_at) VALUES (?, ?, ?, ?, ?)
