-- The key with which a run signs results of micro-benchmarks that its sidecar runs; empty where its tenant has not
-- agreed to that.
ALTER TABLE runs ADD COLUMN probe_key BLOB DEFAULT ''::BLOB;
