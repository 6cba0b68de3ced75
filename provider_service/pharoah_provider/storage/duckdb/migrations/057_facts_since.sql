-- When a node came with its present facts, in unix seconds; 0 when it never had others (ADR 51).
ALTER TABLE nodes ADD COLUMN facts_since DOUBLE DEFAULT 0;
