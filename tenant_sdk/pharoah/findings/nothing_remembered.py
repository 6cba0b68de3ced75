"""The finding `nothing-remembered`."""

from pharoah._finding_kind import FindingKind
from pharoah_protocol.vocabulary import FindingSeverity

NOTHING_REMEMBERED = FindingKind(
    code="nothing-remembered",
    severity=FindingSeverity.INFO,
    text="nothing is remembered of this run on this machine: {reason}",
    help="Other users can change the folder of PHAROAH_STATE_DIR, so nothing in it is read and nothing is written "
    "there: no records of runs, no memory of the provider's log. Use a folder of your own that others cannot write to.",
)
