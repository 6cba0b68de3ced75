"""The finding `memory-tight`."""

from pharoah._finding_kind import FindingKind
from pharoah_protocol.vocabulary import FindingSeverity

MEMORY_TIGHT = FindingKind(
    code="memory-tight",
    severity=FindingSeverity.WARN,
    text="this job fits into memory only just: {needed} of {room} GiB ({place})",
    help="Less than 5 % of the memory is left. Kernels may need it for a moment.",
)
