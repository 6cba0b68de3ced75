-- The transparency log, what an epoch was sealed from, and revoked rows.
CREATE TABLE log (position BIGINT PRIMARY KEY, entry BLOB NOT NULL);
ALTER TABLE epochs ADD COLUMN groups TEXT;
ALTER TABLE epochs ADD COLUMN began BIGINT;
ALTER TABLE epochs ADD COLUMN seed_kept BOOLEAN DEFAULT TRUE;
ALTER TABLE releases ADD COLUMN withdrawn BOOLEAN DEFAULT FALSE;
CREATE TABLE checkpoint (id INTEGER PRIMARY KEY, note BLOB NOT NULL);
CREATE TABLE revoked (epoch BIGINT, sealed_row BLOB, release BIGINT, row_id TEXT);
