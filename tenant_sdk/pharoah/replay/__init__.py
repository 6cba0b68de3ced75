"""One step of a job, saved with the digest of everything it computed, and computed again on other nodes (ADR 54)."""
