-- Where another node reaches a node while both measure together (ADR 57).
ALTER TABLE nodes ADD COLUMN peer_address TEXT DEFAULT '';
