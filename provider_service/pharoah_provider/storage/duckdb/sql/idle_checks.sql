-- name: put
INSERT INTO idle_checks (node, benchmark, result, propensity, checked_at, slowdown_ratio, reason)
VALUES (?, ?, ?, ?, ?, ?, ?)

-- name: past
WITH decided AS (
    SELECT node, benchmark, checked_at, result IN ('slower', 'wrong') AS found,
        lag(result IN ('slower', 'wrong'), 1, false)
            OVER (PARTITION BY node, benchmark ORDER BY checked_at) AS found_before
    FROM idle_checks WHERE result != 'undecided'
), faults AS (
    SELECT node, benchmark, count(*) FILTER (found AND NOT found_before) AS faults,
        arg_max(found, checked_at) AS found
    FROM decided GROUP BY node, benchmark
)
SELECT node, benchmark, min(checked_at) AS first_at, max(checked_at) AS newest_at, count(*) AS checks,
    coalesce(any_value(faults), 0) AS faults, coalesce(any_value(found), false) AS found
FROM idle_checks LEFT JOIN faults USING (node, benchmark) GROUP BY node, benchmark

-- name: results
SELECT probes.* FROM probes LEFT JOIN nodes USING (node)
WHERE purpose IN ('baseline', 'check') AND NOT beside_job AND error = '' AND benchmark = ? AND list_contains(?, node)
    AND ended_at >= coalesce(facts_since, 0) AND (purpose = 'check' OR NOT EXISTS (
        -- A campaign may have measured the node while it was known to be slow.
        SELECT 1 FROM incidents
        WHERE resource = probes.node AND resource_kind IN ('node', 'check') AND state NOT IN ('suspected', 'dismissed')
            AND probes.ended_at >= since AND (state != 'cleared' OR probes.ended_at <= incidents.changed_at)
    ))
QUALIFY row_number() OVER (PARTITION BY node ORDER BY ended_at DESC) <= ?
ORDER BY ended_at
