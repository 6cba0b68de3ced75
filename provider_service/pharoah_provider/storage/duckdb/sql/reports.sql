-- name: open_spans
SELECT * FROM open_report_spans WHERE run_id = ? AND attempt = ?

-- name: last_second
SELECT max(last_second) AS last FROM (
    SELECT last_second FROM open_report_spans WHERE run_id = $run_id AND attempt = $attempt
    UNION ALL
    SELECT last_second FROM report_spans WHERE run_id = $run_id AND attempt = $attempt
)

-- name: extend
UPDATE open_report_spans SET last_second = ?, ended_at = ?
WHERE run_id = ? AND attempt = ? AND list_contains(?::INTEGER[], rank)

-- name: remove_open
DELETE FROM open_report_spans WHERE run_id = ? AND attempt = ? AND list_contains(?::INTEGER[], rank)

-- name: close_all
INSERT INTO report_spans BY NAME SELECT * FROM open_report_spans WHERE run_id = ?

-- name: remove_all_open
DELETE FROM open_report_spans WHERE run_id = ?
