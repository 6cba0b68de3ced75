"""The finding `memory-fits`."""

from pharoah._finding_kind import FindingKind
from pharoah_protocol.vocabulary import FindingSeverity

MEMORY_FITS = FindingKind(
    code="memory-fits",
    severity=FindingSeverity.INFO,
    text="this job fits into memory: {needed} of {room} GiB ({place})",
    help="The dry run needs less memory than there is.",
)
