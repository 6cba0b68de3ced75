"""The end of a confirmed incident."""

from pharoah_protocol.incident_states._state import IncidentState

CLEARED = IncidentState(
    "cleared",
    code=3,
    is_open=False,
    is_reported=True,
    help="The node performs as before: the end of a confirmed incident.",
)
