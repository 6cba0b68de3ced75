-- The physical machine of a node, which nodes of lost runs were seen empty, and orders for micro-benchmarks.
ALTER TABLE nodes ADD COLUMN host TEXT DEFAULT '';
-- Runs that were lost under an earlier release count as gone.
ALTER TABLE runs ADD COLUMN seen_gone BOOLEAN DEFAULT TRUE;
UPDATE runs SET seen_gone = FALSE WHERE ended_at IS NULL;
ALTER TABLE incidents ADD COLUMN established BOOLEAN DEFAULT TRUE;
ALTER TABLE incident_transitions ADD COLUMN established BOOLEAN DEFAULT TRUE;
CREATE TABLE benchmark_orders (
    organisation TEXT NOT NULL, suspected TEXT NOT NULL, node TEXT NOT NULL, purpose TEXT NOT NULL,
    began_at DOUBLE NOT NULL, ended_at DOUBLE NOT NULL, looked_slow BOOLEAN NOT NULL, found TEXT NOT NULL
);
