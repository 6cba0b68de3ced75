-- name: put_import
INSERT INTO imported_tables (provider, public_key, content, changed_at) VALUES (?, ?, ?, ?)

-- name: imports
SELECT provider, public_key, content FROM imported_tables WHERE changed_at <= ?
QUALIFY row_number() OVER (PARTITION BY provider ORDER BY changed_at DESC, rowid DESC) = 1
ORDER BY provider
