"""The finding `step-time`."""

from pharoah._finding_kind import FindingKind
from pharoah_protocol.vocabulary import FindingSeverity

STEP_TIME = FindingKind(
    code="step-time",
    severity=FindingSeverity.INFO,
    text="a step takes {time} on {place}",
    help="A prediction from the dry run and what the machine can do at most.",
)
