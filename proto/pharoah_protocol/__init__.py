"""The protocol: what tenant, provider and auditor share. Imports `pharoah_archetypes` and no other package of ours."""
