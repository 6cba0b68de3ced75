-- Incidents belong to a resource and outlive runs; every change of one is kept.
CREATE TABLE incidents (
    incident_id TEXT PRIMARY KEY, resource_kind TEXT NOT NULL, resource TEXT NOT NULL, kind TEXT NOT NULL,
    state TEXT NOT NULL, fault_domain TEXT NOT NULL, raised_by BLOB NOT NULL, what TEXT NOT NULL, evidence TEXT NOT NULL,
    since DOUBLE NOT NULL, changed_at DOUBLE NOT NULL, step_ratio DOUBLE NOT NULL
);
CREATE TABLE incident_transitions (
    incident_id TEXT NOT NULL, resource_kind TEXT NOT NULL, resource TEXT NOT NULL, kind TEXT NOT NULL,
    state TEXT NOT NULL, fault_domain TEXT NOT NULL, raised_by BLOB NOT NULL, what TEXT NOT NULL, evidence TEXT NOT NULL,
    since DOUBLE NOT NULL, changed_at DOUBLE NOT NULL, step_ratio DOUBLE NOT NULL
);
INSERT INTO incidents
    SELECT alert_id, 'node', node, 'slow', state, fault_domain, run_id, what, evidence, since, changed_at, step_ratio
    FROM alerts;
INSERT INTO incident_transitions SELECT * FROM incidents;
DROP TABLE alerts;
