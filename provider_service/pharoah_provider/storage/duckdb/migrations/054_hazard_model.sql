-- The newest hazard model of nodes as it is published (ADR 55), as JSON; at most one row.
CREATE TABLE hazard_model (made_at DOUBLE, content TEXT);
