"""The finding `values-assumed`."""

from pharoah._finding_kind import FindingKind
from pharoah_protocol.vocabulary import FindingSeverity

VALUES_ASSUMED = FindingKind(
    code="values-assumed",
    severity=FindingSeverity.INFO,
    text="the dry run followed branches, or made up values, that only a real run computes",
    help="The verdict holds for every way that was followed. `pharoah explain` lists the places in the script.",
)
