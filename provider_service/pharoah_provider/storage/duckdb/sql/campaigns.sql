-- name: put_campaign
INSERT INTO campaigns (campaign_id, name, text, seed, state, reason, created_at, context_rule)
VALUES (?, ?, ?, ?, ?, '', ?, ?)

-- name: campaigns
SELECT * FROM campaigns ORDER BY created_at

-- name: set_state
UPDATE campaigns SET state = ?, reason = ? WHERE campaign_id = ?

-- name: works
SELECT * FROM campaign_works WHERE campaign_id = ? ORDER BY number

-- name: assign_block
UPDATE campaign_works SET node = ? WHERE campaign_id = ? AND block = ?

-- name: move_block
UPDATE campaign_works SET state = 'moved' WHERE campaign_id = ? AND block = ? AND state = 'waiting'

-- name: end_work
UPDATE campaign_works SET state = ?, ended_at = ? WHERE campaign_id = ? AND number = ? AND state = 'waiting'
