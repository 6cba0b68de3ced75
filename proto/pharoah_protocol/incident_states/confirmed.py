"""The state of an incident that micro-benchmarks have confirmed."""

from pharoah_protocol.incident_states._state import IncidentState

CONFIRMED = IncidentState(
    "confirmed",
    code=2,
    is_open=True,
    is_reported=True,
    help="Micro-benchmarks on the node confirm the suspicion.",
)
