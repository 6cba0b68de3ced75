"""The state of a node without an incident."""

from pharoah_protocol.incident_states._state import IncidentState

QUIET = IncidentState(
    "quiet",
    code=0,
    is_open=False,
    is_reported=False,
    help="Nothing is known against the node.",
)
