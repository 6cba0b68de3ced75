-- Reports as spans of equal values. The open span of each rank lies in a table of its own, which stays small: a report
-- that changes nothing updates one row there, and the large table is only ever appended to.
CREATE TABLE report_spans (
    run_id BLOB, attempt INTEGER, rank INTEGER, first_second BIGINT, last_second BIGINT, started_at DOUBLE,
    ended_at DOUBLE, signals MAP(TEXT, DOUBLE), masked BOOLEAN, risk DOUBLE
);
CREATE TABLE open_report_spans AS SELECT * FROM report_spans;
INSERT INTO report_spans
SELECT run_id, attempt, rank, min(row_number), max(row_number), min(ended_at - span_seconds), max(ended_at),
    MAP {'step_ratio': step_ratio, 'memory_ratio': memory_ratio}, masked, nullif(risk, 'NaN'::DOUBLE)
FROM (
    SELECT *, row_number - row_number() OVER (
        PARTITION BY run_id, attempt, rank, step_ratio, memory_ratio, masked, risk ORDER BY row_number
    ) AS island
    FROM reports
)
GROUP BY run_id, attempt, rank, step_ratio, memory_ratio, masked, risk, island;
DROP TABLE reports;
-- A cell that measured no step has an empty list; older releases stored one NaN instead.
UPDATE cells SET step_seconds = list_filter(step_seconds, lambda s: NOT isnan(s));
