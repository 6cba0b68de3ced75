"""The finding `known-on-one-device`."""

from pharoah._finding_kind import FindingKind
from pharoah_protocol.vocabulary import FindingSeverity

KNOWN_ON_ONE_DEVICE = FindingKind(
    code="known-on-one-device",
    severity=FindingSeverity.INFO,
    text="known on one device only: what this job sends between its ranks was not tried",
    help="What each device of this job computes has run here without other ranks.",
)
