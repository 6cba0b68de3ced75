"""The sidecar: the helper process that owns gRPC, cryptography and waiting, so that no rank has to.

One per node and job, started by exec. It dies with its last connection; a sidecar that dies costs the job nothing.
"""
