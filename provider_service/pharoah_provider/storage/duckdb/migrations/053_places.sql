-- What a node shares with others because of where it stands (ADR 52).
ALTER TABLE nodes ADD COLUMN places TEXT[] DEFAULT [];
