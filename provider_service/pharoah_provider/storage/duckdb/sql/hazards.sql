-- name: remove_model
DELETE FROM hazard_model

-- name: put_model
INSERT INTO hazard_model (made_at, content, checked) VALUES (?, ?, ?)

-- name: newest_model
SELECT content FROM hazard_model ORDER BY made_at DESC LIMIT 1

-- name: newest_check
SELECT checked FROM hazard_model ORDER BY made_at DESC LIMIT 1

-- name: observed_hours
SELECT node, list(DISTINCT hour) AS hours
FROM (
    SELECT node, unnest(range(first_hour, least(last_hour + 1, CAST(floor($2 / 3600) AS BIGINT)))) AS hour
    FROM (
        SELECT DISTINCT node, CAST(floor(greatest(first_at, $1) / 3600) AS BIGINT) AS first_hour,
            CAST(floor(last_at / 3600) AS BIGINT) AS last_hour
        FROM (
            SELECT node, first_at, last_at FROM telemetry_spans
            UNION ALL SELECT node, first_at, last_at FROM open_telemetry_spans
        )
        WHERE last_at >= $1
    )
)
GROUP BY node

-- name: trouble_hours
SELECT node, metric AS signal, device, hour,
    least(1.0, sum(least(ended_at, (hour + 1) * 3600.0) - greatest(first_at, hour * 3600.0)) / 3600.0) AS share
FROM (
    SELECT *, unnest(range(
        CAST(floor(greatest(first_at, $1) / 3600) AS BIGINT), CAST(floor(ended_at / 3600) AS BIGINT) + 1
    )) AS hour
    FROM (
        SELECT node, metric, device, first_at, last_at + $2 AS ended_at
        FROM (SELECT * FROM telemetry_spans UNION ALL SELECT * FROM open_telemetry_spans)
        WHERE list_contains($3, metric) AND value > 0 AND NOT isnan(value) AND last_at >= $1
    )
)
GROUP BY node, metric, device, hour
HAVING share > 0
