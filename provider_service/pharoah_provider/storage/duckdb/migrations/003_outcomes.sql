-- What tenants share: how runs ended, under pseudonyms that nobody can compute alone, and jobs that they revealed.
CREATE TABLE votes (
    run_id BLOB PRIMARY KEY, period BIGINT, name TEXT, organisation TEXT, context_id TEXT, failed BOOLEAN,
    reported_at DOUBLE
);
CREATE TABLE revealed (run_id BLOB PRIMARY KEY, tenant TEXT, context_id TEXT, fingerprint TEXT, revealed_at DOUBLE);
