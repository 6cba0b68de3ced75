-- name: put_campaign
INSERT INTO campaigns (
    campaign_id, name, text, seed, state, reason, created_at, skip_same_code, executor, budget_seconds, context_rule
) VALUES (?, ?, ?, ?, ?, '', ?, ?, ?, ?, ?)

-- name: campaigns
SELECT * FROM campaigns ORDER BY created_at

-- name: set_state
UPDATE campaigns SET state = ?, reason = ? WHERE campaign_id = ?

-- name: set_budget
UPDATE campaigns SET budget_seconds = ? WHERE campaign_id = ?

-- name: works
SELECT * FROM campaign_works WHERE campaign_id = ? ORDER BY number

-- name: cells_of_workload
SELECT cell FROM campaign_works JOIN campaigns USING (campaign_id)
WHERE json_extract_string(nullif(cell, ''), '$.workload') = ? ORDER BY created_at DESC, number

-- name: seconds_of_cells
SELECT cell, ended_at - began_at AS seconds FROM campaign_works
WHERE json_extract_string(nullif(cell, ''), '$.workload') = ? AND state = 'done' AND began_at > 0

-- name: assign_block
UPDATE campaign_works SET node = ? WHERE campaign_id = ? AND block = ?

-- name: move_block
UPDATE campaign_works SET state = 'moved' WHERE campaign_id = ? AND block = ? AND state = 'waiting'

-- name: set_aside
UPDATE campaign_works SET state = 'not run', cause = batch.cause, outcome = '', reason = batch.reason FROM batch
WHERE campaign_works.campaign_id = batch.campaign_id AND campaign_works.number = batch.number
    AND campaign_works.state = 'waiting'

-- name: bring_back
UPDATE campaign_works SET state = 'waiting', cause = '', reason = '' WHERE campaign_id = ? AND state = 'not run'

-- name: finish_work
UPDATE campaign_works SET state = ?, began_at = ?, ended_at = ?, outcome = ?, reason = ''
WHERE campaign_id = ? AND number = ? AND state = 'waiting'

-- name: suspects
SELECT * FROM campaign_suspects WHERE campaign_id = ? ORDER BY suspect_id

-- name: put_suspect
INSERT INTO campaign_suspects
    (campaign_id, suspect_id, node, title, suspected, control,
     decision, pairs, most_pairs, against, for_it, e_value, nodes, missing)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: set_confirmation
UPDATE campaign_suspects
SET decision = ?, pairs = ?, most_pairs = ?, against = ?, for_it = ?, e_value = ?, nodes = ?, missing = ?
WHERE campaign_id = ? AND suspect_id = ?
