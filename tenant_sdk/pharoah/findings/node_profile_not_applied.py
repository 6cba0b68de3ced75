"""The finding `node-profile-not-applied`."""

from pharoah._finding_kind import FindingKind
from pharoah_protocol.vocabulary import FindingSeverity

NODE_PROFILE_NOT_APPLIED = FindingKind(
    code="node-profile-not-applied",
    severity=FindingSeverity.INFO,
    text="not applied of the node's profile: {what}",
    help="The agent of this node states a limit that this release does not know, that cannot be, or that could keep "
    "the job from running. The job starts without it.",
)
