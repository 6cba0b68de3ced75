-- Tickets get a time, so that they can be deleted; those from before it count as used now.
ALTER TABLE tickets ADD COLUMN taken_at DOUBLE;
UPDATE tickets SET taken_at = epoch(now());
