-- What was done to a degraded cell, and what telemetry saw of it. Cells from before have no dose and no telemetry, and
-- their faults began 2.2 seconds after the cell.
ALTER TABLE cells ADD COLUMN dose DOUBLE DEFAULT 0;
ALTER TABLE cells ADD COLUMN onset_seconds DOUBLE DEFAULT 2.2;
ALTER TABLE cells ADD COLUMN telemetry VARCHAR DEFAULT '[]';
