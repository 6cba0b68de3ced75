"""The finding `node-takes-cores`."""

from pharoah._finding_kind import FindingKind
from pharoah_protocol.vocabulary import FindingSeverity

NODE_TAKES_CORES = FindingKind(
    code="node-takes-cores",
    severity=FindingSeverity.WARN,
    text="the node's profile leaves this job {left} of {had} cores",
    help="The agent of this node limits jobs to some of its cores, and `pharoah run` starts the job on those only.",
)
