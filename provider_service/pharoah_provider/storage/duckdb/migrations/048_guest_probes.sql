-- The key with which a run signs results of micro-benchmarks that its sidecar runs; empty when its tenant has not agreed.
ALTER TABLE runs ADD COLUMN probe_key BLOB DEFAULT ''::BLOB;
