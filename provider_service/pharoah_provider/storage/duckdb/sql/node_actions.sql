-- name: put_decision
INSERT INTO node_actions (
    node, action, node_class, probability, sick_probability, failures, reruns, wrong_for, held_back, by_operator,
    decided_at
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: newest
SELECT * FROM node_actions
QUALIFY row_number() OVER (PARTITION BY node ORDER BY decided_at DESC, rowid DESC) = 1
ORDER BY node

-- name: returned
SELECT node, max(decided_at) AS returned_at FROM node_actions WHERE by_operator GROUP BY node
