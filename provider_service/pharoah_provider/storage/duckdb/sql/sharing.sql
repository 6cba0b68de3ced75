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
        SELECT attempt, first_second, last_second FROM report_spans WHERE run_id = $run_id AND rank = 0
        UNION ALL
        SELECT attempt, first_second, last_second FROM open_report_spans WHERE run_id = $run_id AND rank = 0
    ) GROUP BY attempt
)
