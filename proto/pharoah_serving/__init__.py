"""Serving gRPC to strangers: identities, call guard, audit log, quotas, keys. Used by provider and auditor."""
