-- name: put_incident
INSERT OR REPLACE INTO incidents (
    incident_id, resource_kind, resource, kind, state, fault_domain, raised_by, what, evidence, since, changed_at,
    step_ratio, established, short_resource
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: put_transition
INSERT INTO incident_transitions (
    incident_id, resource_kind, resource, kind, state, fault_domain, raised_by, what, evidence, since, changed_at,
    step_ratio, established, short_resource
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: open_incidents
SELECT * FROM incidents WHERE NOT list_contains(?, state) ORDER BY since

-- name: changes
SELECT * FROM incident_transitions WHERE resource_kind = ? AND resource = ? AND changed_at >= ? ORDER BY changed_at

-- name: all_changes
SELECT * FROM incident_transitions WHERE changed_at >= ? ORDER BY changed_at

-- name: histories
SELECT * FROM incident_transitions
WHERE incident_id IN (SELECT incident_id FROM incidents WHERE changed_at >= ? OR NOT list_contains(?, state))
ORDER BY changed_at
