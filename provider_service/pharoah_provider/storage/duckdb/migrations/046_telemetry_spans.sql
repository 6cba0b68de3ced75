-- Telemetry as spans of equal values, as reports are (007). The open span of each signal lies in a table of its own.
CREATE TABLE telemetry_spans (
    node TEXT, metric TEXT, device TEXT, value DOUBLE, first_at DOUBLE, last_at DOUBLE, readings BIGINT
);
CREATE TABLE open_telemetry_spans AS SELECT * FROM telemetry_spans;
-- Readings that are more than ten seconds apart are not one span (`telemetry.LONGEST_GAP_SECONDS`).
INSERT INTO telemetry_spans
SELECT node, metric, device, any_value(value), min(sampled_at), max(sampled_at), count(*)
FROM (
    SELECT *, sum(begins) OVER (PARTITION BY node, metric, device ORDER BY sampled_at) AS island
    FROM (
        SELECT *, CASE WHEN value IS NOT DISTINCT FROM lag(value) OVER past
            AND sampled_at - lag(sampled_at) OVER past <= 10.0 THEN 0 ELSE 1 END AS begins
        FROM telemetry
        WINDOW past AS (PARTITION BY node, metric, device ORDER BY sampled_at)
    )
)
GROUP BY node, metric, device, island;
DROP TABLE telemetry;
