"""The auditor: a party that is neither tenant nor provider.

`witness` cosigns the provider's log, `replay` seals and learns an epoch again, `pseudonym_service` holds the second
pseudonym key, and `pharoah-auditor verify` prints what a tenant's evidence proves.
"""

from pharoah_protocol import grpc_log

grpc_log.errors_only()
