"""The finding `learned-memory`."""

from pharoah._finding_kind import FindingKind
from pharoah_protocol.vocabulary import FindingSeverity

LEARNED_MEMORY = FindingKind(
    code="learned-memory",
    severity=FindingSeverity.WARN,
    text="{subject} runs out of memory here",
    help="Comparable runs ran out of memory on nodes like this one. Use less memory or a larger GPU.",
)
