"""The transparency log (RFC 6962, C2SP): Merkle trees, signed checkpoints, and what a reader concludes from the log."""
