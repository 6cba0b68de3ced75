-- How the newest hazard model does on nodes it was not fitted on, as JSON (ADR 55).
ALTER TABLE hazard_model ADD COLUMN checked TEXT DEFAULT '';
