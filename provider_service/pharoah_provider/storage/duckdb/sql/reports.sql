-- name: open_spans
SELECT * FROM open_report_spans WHERE run_id = ? AND attempt = ?

-- name: all_open_spans
SELECT * FROM open_report_spans

-- name: last_second
SELECT max(last_second) AS last FROM (
    SELECT last_second FROM open_report_spans WHERE run_id = $run_id AND attempt = $attempt
    UNION ALL
    SELECT last_second FROM report_spans WHERE run_id = $run_id AND attempt = $attempt
)

-- name: extend
UPDATE open_report_spans AS span SET last_second = batch.last_second, ended_at = batch.ended_at
FROM batch WHERE span.run_id = batch.run_id AND span.attempt = batch.attempt AND span.rank = batch.rank

-- name: remove_open
DELETE FROM open_report_spans AS span USING batch
WHERE span.run_id = batch.run_id AND span.attempt = batch.attempt AND span.rank = batch.rank

-- name: close_all
INSERT INTO report_spans BY NAME SELECT * FROM open_report_spans WHERE run_id = ?

-- name: remove_all_open
DELETE FROM open_report_spans WHERE run_id = ?
