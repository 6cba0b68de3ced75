-- name: put
INSERT INTO own_fingerprints (workload, settings, software, fingerprint, reason, made_at) VALUES (?, ?, ?, ?, ?, ?)

-- name: contents
SELECT workload, settings FROM own_fingerprints WHERE software = ?

-- name: fingerprints
SELECT workload, settings, fingerprint FROM own_fingerprints WHERE fingerprint != '' AND software = ? ORDER BY made_at
