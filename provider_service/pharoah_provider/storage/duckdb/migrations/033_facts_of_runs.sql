-- What the node of a run was when the run joined: learning compares runs by the facts of their nodes.
ALTER TABLE runs ADD COLUMN server_facts VARCHAR[] DEFAULT [];
