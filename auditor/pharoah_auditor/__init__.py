"""The auditor's side: who is neither tenant nor provider, and whom both believe a little.

`witness` cosigns the provider's log, `replay` seals an epoch again, `verify` says what a tenant's evidence proves.
"""
