"""Learners and the sealing of what was learned. Pure and seeded: an auditor runs them again on the same evidence."""
