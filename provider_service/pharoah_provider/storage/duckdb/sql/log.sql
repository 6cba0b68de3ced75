-- name: log_entries
SELECT entry FROM log ORDER BY position

-- name: put_log_entry
INSERT INTO log (position, entry) VALUES (?, ?)

-- name: put_checkpoint
INSERT OR REPLACE INTO checkpoint (id, note) VALUES (1, ?)

-- name: checkpoint
SELECT note FROM checkpoint

-- name: put_forgotten
INSERT INTO forgotten (change_number, kind, name, changed_at, undone)
VALUES ((SELECT count(*) + 1 FROM forgotten), ?, ?, ?, ?)

-- name: forgotten
SELECT * FROM forgotten WHERE changed_at <= ? ORDER BY change_number

-- name: put_revoked_row
INSERT INTO revoked (epoch, sealed_row, release, row_id) VALUES (?, ?, ?, ?)

-- name: revoked
SELECT sealed_row FROM revoked WHERE epoch = ?

-- name: revoked_ids
SELECT DISTINCT row_id FROM revoked WHERE row_id != ''

-- name: keep_revoked
UPDATE revoked SET row_id = ? WHERE epoch = ? AND sealed_row = ?

-- name: reinstate
UPDATE revoked SET row_id = '' WHERE row_id = ?
