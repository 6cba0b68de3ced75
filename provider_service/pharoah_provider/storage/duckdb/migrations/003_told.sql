-- What tenants tell of themselves: how runs ended under names nobody can look up alone, and jobs they revealed.
CREATE TABLE votes (
    run_id BLOB PRIMARY KEY, period BIGINT, name TEXT, organisation TEXT, context_id TEXT, failed BOOLEAN, told_at DOUBLE
);
CREATE TABLE revealed (run_id BLOB PRIMARY KEY, tenant TEXT, context_id TEXT, fingerprint TEXT, told_at DOUBLE);
