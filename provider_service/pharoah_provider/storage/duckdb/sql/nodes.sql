-- name: put_node
INSERT OR REPLACE INTO nodes (
    node, ticket_key, boot_id, context_id, device_id, server_facts, device_facts, cpus, version, last_seen
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: node
SELECT * FROM nodes WHERE node = ?

-- name: nodes
SELECT * FROM nodes ORDER BY node
