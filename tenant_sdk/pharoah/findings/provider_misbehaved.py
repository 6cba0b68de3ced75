"""The finding `provider-misbehaved`."""

from pharoah._finding_kind import FindingKind
from pharoah_protocol.vocabulary import FindingSeverity

PROVIDER_MISBEHAVED = FindingKind(
    code="provider-misbehaved",
    severity=FindingSeverity.WARN,
    text="the provider has signed what it must not sign; others can check it",
    help="The answer was rejected. The evidence is kept; `pharoah audit FILE` shows what it proves.",
)
