"""The finding `other-than-checked`."""

from pharoah._finding_kind import FindingKind
from pharoah_protocol.vocabulary import FindingSeverity

OTHER_THAN_CHECKED = FindingKind(
    code="other-than-checked",
    severity=FindingSeverity.WARN,
    text="what runs is not what was checked: {difference}",
    help="The captured step differs from the dry run, so the verdict may not apply. Check the job with the arguments"
    " it runs with.",
)
