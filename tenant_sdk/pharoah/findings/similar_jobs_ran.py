"""The finding `similar-jobs-ran`."""

from pharoah._finding_kind import FindingKind
from pharoah_protocol.vocabulary import FindingSeverity

SIMILAR_JOBS_RAN = FindingKind(
    code="similar-jobs-ran",
    severity=FindingSeverity.INFO,
    text="near duplicates of this job have run on nodes like this one",
    help="Similar jobs worked here; this job itself was not tried.",
)
