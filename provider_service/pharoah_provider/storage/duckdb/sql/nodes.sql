-- name: put_node
INSERT OR REPLACE INTO nodes (
    node, ticket_key, boot_id, context_id, device_id, server_facts, device_facts, cpus, version, last_seen, host, places,
    peer_address, facts_since
) VALUES (
    ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?,
    coalesce((
        SELECT CASE WHEN context_id = ? AND device_id = ? THEN facts_since ELSE ? END FROM nodes WHERE node = ?
    ), 0)
)

-- name: node
SELECT * FROM nodes WHERE node = ?

-- name: nodes
SELECT * FROM nodes ORDER BY node

-- name: facts_since
SELECT node, facts_since FROM nodes

-- name: put_context_change
INSERT INTO context_changes (node, changed_at) VALUES (?, ?)

-- name: context_changes
SELECT count(*) AS changes FROM context_changes WHERE node = ? AND changed_at > ?

-- name: forget_context_changes
DELETE FROM context_changes WHERE node = ?

-- name: device_signals
SELECT metric, device FROM open_telemetry_spans WHERE node = ?
