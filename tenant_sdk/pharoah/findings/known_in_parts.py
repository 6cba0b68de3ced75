"""The finding `known-in-parts`."""

from pharoah._finding_kind import FindingKind
from pharoah_protocol.vocabulary import FindingSeverity

KNOWN_IN_PARTS = FindingKind(
    code="known-in-parts",
    severity=FindingSeverity.INFO,
    text="known in parts: what each device computes has run here, and so has what is sent, but not in one job",
    help="Both parts worked here in different jobs.",
)
