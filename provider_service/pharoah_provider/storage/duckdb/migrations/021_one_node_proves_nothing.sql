-- One node proves nothing (ADR 21). Results of cells get an id, so that one of them can be forgotten.
ALTER TABLE cells ADD COLUMN result_id TEXT;
UPDATE cells SET result_id = left(md5(concat_ws('/', rowid, campaign, cell, node, ran_at)), 16);
-- What the provider's own dry runs of ordered cells gave: one row per workload, settings and release of its software.
CREATE TABLE own_fingerprints (
    workload TEXT, settings TEXT, software TEXT, fingerprint TEXT, reason TEXT, made_at DOUBLE
);
-- Each change of which evidence is left out from learning; the newest one about a node or a result holds.
CREATE TABLE forgotten (change_number BIGINT, kind TEXT, name TEXT, changed_at DOUBLE, undone BOOLEAN);
-- When a node came with facts that make another context or device model.
CREATE TABLE context_changes (node TEXT, changed_at DOUBLE);
-- How many pseudonyms each organisation had evaluated in a period: it can vote about no more names.
CREATE TABLE pseudonym_evaluations (
    organisation TEXT, period BIGINT, evaluated BIGINT, PRIMARY KEY (organisation, period)
);
