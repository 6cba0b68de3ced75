"""The finding `reported-failure`."""

from pharoah._finding_kind import FindingKind
from pharoah_protocol.vocabulary import FindingSeverity

REPORTED_FAILURE = FindingKind(
    code="reported-failure",
    severity=FindingSeverity.WARN,
    text="other organisations report that this job fails here",
    help="Tenants who share how their runs end report failures of this very job.",
)
