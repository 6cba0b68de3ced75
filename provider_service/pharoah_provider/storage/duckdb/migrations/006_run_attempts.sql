-- One row for each attempt of a run, so that nothing is overwritten when it joins again.
CREATE TABLE run_attempts (
    run_id BLOB NOT NULL, attempt INTEGER NOT NULL, job_id BLOB NOT NULL, tenant TEXT NOT NULL, node TEXT NOT NULL,
    ranks INTEGER NOT NULL, beside_job BOOLEAN NOT NULL, limit_seconds DOUBLE NOT NULL, joined_at DOUBLE NOT NULL,
    ended_at DOUBLE, end_state TEXT, attribution TEXT,
    PRIMARY KEY (run_id, attempt)
);
INSERT INTO run_attempts
    SELECT run_id, attempt, ''::BLOB, tenant, node, ranks, beside_job, limit_seconds, joined_at, ended_at, end_state, NULL
    FROM runs;
DROP TABLE runs;
ALTER TABLE run_attempts RENAME TO runs;
