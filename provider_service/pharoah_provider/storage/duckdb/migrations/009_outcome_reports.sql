-- The field's words. Columns are copied by position: databases of the first days have other names for the last ones.
CREATE TABLE outcome_reports (
    run_id BLOB PRIMARY KEY, period BIGINT, name TEXT, organisation TEXT, context_id TEXT, failed BOOLEAN,
    reported_at DOUBLE
);
INSERT INTO outcome_reports SELECT * FROM votes;
DROP TABLE votes;
CREATE TABLE revealed_jobs (
    run_id BLOB PRIMARY KEY, tenant TEXT, context_id TEXT, fingerprint TEXT, revealed_at DOUBLE
);
INSERT INTO revealed_jobs SELECT * FROM revealed;
DROP TABLE revealed;
