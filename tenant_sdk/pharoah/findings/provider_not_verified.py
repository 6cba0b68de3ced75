"""The finding `provider-not-verified`."""

from pharoah._finding_kind import FindingKind
from pharoah_protocol.vocabulary import FindingSeverity

PROVIDER_NOT_VERIFIED = FindingKind(
    code="provider-not-verified",
    severity=FindingSeverity.WARN,
    text="the provider's signed answer is kept, but proves nothing to others: {reason}",
    help="The answer was rejected, but the fault cannot be shown to others.",
)
