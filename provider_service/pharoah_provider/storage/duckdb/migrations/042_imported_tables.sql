-- Portable tables of other providers (ADR 41): each change of what is used; an empty content removes the table.
CREATE TABLE imported_tables (provider TEXT, public_key BLOB, content TEXT, changed_at DOUBLE);
