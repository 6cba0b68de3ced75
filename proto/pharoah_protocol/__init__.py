"""The protocol: what tenant, provider and auditor share. Imports `pharoah_archetypes` and no other package of ours."""

__version__ = "0.1.0"
"""The version of the distribution `pharoah`; all packages share it."""
