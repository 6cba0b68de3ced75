-- name: put
INSERT INTO own_fingerprints (workload, settings, software, fingerprint, reason, made_at) VALUES (?, ?, ?, ?, ?, ?)

-- name: contents
-- Those that need no further dry run: one gave a fingerprint, or enough of them gave none.
SELECT workload, settings FROM own_fingerprints WHERE software = ?
GROUP BY workload, settings HAVING bool_or(fingerprint != '') OR count(*) >= ?

-- name: fingerprints
SELECT workload, settings, fingerprint FROM own_fingerprints WHERE fingerprint != '' AND software = ? ORDER BY made_at
