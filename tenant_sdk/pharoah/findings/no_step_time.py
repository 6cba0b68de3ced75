"""The finding `no-step-time`."""

from pharoah._finding_kind import FindingKind
from pharoah_protocol.vocabulary import FindingSeverity

NO_STEP_TIME = FindingKind(
    code="no-step-time",
    severity=FindingSeverity.INFO,
    text="no step time: {reason}",
    help="The profile of the node cannot be used to predict how long a step takes.",
)
