"""The first state of an incident."""

from pharoah_protocol.incident_states._state import IncidentState

SUSPECTED = IncidentState(
    "suspected",
    code=1,
    is_open=True,
    is_reported=False,
    help="Reports of a run differ from what is expected; micro-benchmarks have not confirmed it yet.",
)
