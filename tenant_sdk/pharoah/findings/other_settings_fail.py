"""The finding `other-settings-fail`."""

from pharoah._finding_kind import FindingKind
from pharoah_protocol.vocabulary import FindingSeverity

OTHER_SETTINGS_FAIL = FindingKind(
    code="other-settings-fail",
    severity=FindingSeverity.INFO,
    text="other settings or sizes of this architecture fail here; those of this job were not tried",
    help="Runs of the same architecture failed, and what they have in common may be what this job does otherwise.",
)
