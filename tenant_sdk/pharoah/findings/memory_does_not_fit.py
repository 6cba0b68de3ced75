"""The finding `memory-does-not-fit`."""

from pharoah._finding_kind import FindingKind
from pharoah_protocol.vocabulary import FindingSeverity

MEMORY_DOES_NOT_FIT = FindingKind(
    code="memory-does-not-fit",
    severity=FindingSeverity.BLOCK,
    text="this job does not fit into memory: {needed} of {room} GiB ({place})",
    help="The dry run needs more memory than there is. The remedies were tried in dry runs of their own.",
)
