"""The end of a suspicion that was never confirmed."""

from pharoah_protocol.incident_states._state import IncidentState

DISMISSED = IncidentState(
    "dismissed",
    code=4,
    is_open=False,
    is_reported=False,
    help="The suspicion was never confirmed: the end of a suspected incident.",
)
