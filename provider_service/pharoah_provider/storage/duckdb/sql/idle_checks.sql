-- name: put
INSERT INTO idle_checks (node, benchmark, result, propensity, checked_at, slowdown_ratio, reason)
VALUES (?, ?, ?, ?, ?, ?, ?)

-- name: of_nodes
SELECT * FROM idle_checks WHERE list_contains(?, node) ORDER BY checked_at

-- name: newest
SELECT node, max(checked_at) AS checked_at FROM idle_checks GROUP BY node

-- name: results
SELECT * FROM probes
WHERE purpose IN ('baseline', 'check') AND NOT beside_job AND error = '' AND benchmark = ? AND list_contains(?, node)
QUALIFY row_number() OVER (PARTITION BY node ORDER BY ended_at DESC) <= ?
ORDER BY ended_at
