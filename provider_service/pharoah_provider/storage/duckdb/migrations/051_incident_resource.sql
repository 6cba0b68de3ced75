-- What is short or sick, as far as micro-benchmarks have shown it; empty while that is not known.
ALTER TABLE incidents ADD COLUMN short_resource TEXT DEFAULT '';
ALTER TABLE incident_transitions ADD COLUMN short_resource TEXT DEFAULT '';
