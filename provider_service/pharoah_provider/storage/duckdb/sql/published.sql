-- The column `withdrawn` holds whether a release was rolled back.

-- name: put_release
INSERT INTO releases (release, made_at, content, withdrawn) VALUES (?, ?, ?, FALSE)

-- name: newest_release
SELECT content FROM releases WHERE NOT withdrawn ORDER BY release DESC LIMIT 1

-- name: release
SELECT content FROM releases WHERE release = ?

-- name: release_made_at
SELECT made_at FROM releases WHERE release = ?

-- name: last_release_number
SELECT coalesce(max(release), 0) AS last FROM releases

-- name: release_before
SELECT content FROM releases WHERE release < ? AND NOT withdrawn ORDER BY release DESC LIMIT 1

-- name: roll_back_release
UPDATE releases SET withdrawn = TRUE WHERE release = ?

-- name: put_epoch
INSERT INTO epochs (epoch, release, not_before, not_after, head, signature, groups, began, seed_kept)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, TRUE)

-- name: epoch
SELECT * FROM epochs WHERE epoch = ?

-- name: newest_epochs
SELECT * FROM epochs ORDER BY epoch DESC LIMIT ?

-- name: seeds_before
SELECT epoch FROM epochs WHERE began < ? AND seed_kept ORDER BY epoch

-- name: put_seed_destroyed
UPDATE epochs SET seed_kept = FALSE WHERE epoch = ?
