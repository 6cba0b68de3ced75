CREATE TABLE nodes (
    node TEXT PRIMARY KEY, ticket_key BLOB NOT NULL, boot_id TEXT, context_id TEXT NOT NULL, device_id TEXT NOT NULL,
    server_facts TEXT[], device_facts TEXT[], cpus INTEGER[], version TEXT, last_seen DOUBLE
);
CREATE TABLE telemetry (node TEXT, sampled_at DOUBLE, metric TEXT, device TEXT, value DOUBLE);
CREATE TABLE runs (
    run_id BLOB PRIMARY KEY, tenant TEXT NOT NULL, node TEXT NOT NULL, attempt INTEGER NOT NULL, ranks INTEGER,
    beside_job BOOLEAN, limit_seconds DOUBLE, joined_at DOUBLE, ended_at DOUBLE, end_state TEXT
);
CREATE TABLE tickets (nonce TEXT PRIMARY KEY, run_id BLOB);
CREATE TABLE reports (
    run_id BLOB, attempt INTEGER, row_number BIGINT, rank INTEGER, ended_at DOUBLE, span_seconds DOUBLE,
    step_ratio DOUBLE, memory_ratio DOUBLE, masked BOOLEAN, risk DOUBLE
);
CREATE TABLE alerts (
    alert_id TEXT PRIMARY KEY, run_id BLOB, node TEXT, state TEXT, fault_domain TEXT, what TEXT, evidence TEXT,
    since DOUBLE, changed_at DOUBLE, step_ratio DOUBLE
);
CREATE TABLE probes (
    order_id TEXT, node TEXT, benchmark TEXT, purpose TEXT, beside_job BOOLEAN, started_at DOUBLE, ended_at DOUBLE,
    seconds DOUBLE[], error TEXT
);
CREATE TABLE cells (
    campaign TEXT, cell TEXT, node TEXT, context_id TEXT, device_id TEXT, workload TEXT, settings TEXT, degradation TEXT,
    outcome TEXT, detail TEXT, step_seconds DOUBLE[], windows TEXT, fingerprint TEXT, context TEXT, ran_at DOUBLE
);
CREATE TABLE releases (release BIGINT PRIMARY KEY, made_at DOUBLE, content TEXT);
CREATE TABLE epochs (
    epoch BIGINT PRIMARY KEY, release BIGINT, not_before BIGINT, not_after BIGINT, head BLOB, signature BLOB
);
